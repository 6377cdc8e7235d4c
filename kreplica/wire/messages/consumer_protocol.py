"""Content of the ``metadata`` and ``assignment`` bytes of classic consumers, which brokers do not parse.

Both start with their version as an int16.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import Buffer
from kreplica.wire.schema import Schema

_VERSION = Struct(">h")

SUBSCRIPTION = Schema(
    "ConsumerProtocolSubscription",
    (0, 3),
    None,
    """
    topics []str
    user_data bytes? =null
    owned_partitions [] 1+
      topic str
      partitions []i32
    generation_id i32 2+ =-1
    rack_id str? 3+ =null
    """,
)

ASSIGNMENT = Schema(
    "ConsumerProtocolAssignment",
    (0, 3),
    None,
    """
    assigned_partitions []
      topic str
      partitions []i32
    user_data bytes? =null
    """,
)


def parse_versioned(schema: Schema, data: Buffer) -> tuple[int, dict[str, Any]]:
    """Parse data that starts with its version.

    Data with a version above the highest of the schema is parsed as the highest, as in Kafka.

    :return: the version in the data, and the fields.
    :raise ProtocolError: the data is malformed.
    """
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except StructError:
        raise ProtocolError(f"{schema.name}.version", f"needs 2 bytes, but {len(data)} remain") from None
    return version, schema.parse(min(version, schema.versions[-1]), data, _VERSION.size)


def build_versioned(schema: Schema, version: int, value: dict[str, Any]) -> bytes:
    """Build data that starts with its version."""
    return _VERSION.pack(version) + schema.build(version, value)
