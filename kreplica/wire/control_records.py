"""Control batches: the markers that end a transaction in a partition (KIP-98)."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record

ABORT = 0
COMMIT = 1

_VERSION = 0
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class EndMarker(NamedTuple):
    """What the record of a transaction marker says.

    :param coordinator_epoch: the leader epoch of the coordinator's partition: an older coordinator is refused.
    """

    committed: bool
    coordinator_epoch: int


def build_end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    key = _KEY.pack(_VERSION, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def parse_end_marker(record: Record) -> EndMarker | None:
    """What a control record says, or None where it is not of a kind that ends a transaction: such are ignored.

    :raise ProtocolError: it is cut short.
    """
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except StructError as error:
        raise ProtocolError(f"Record(offset={record.offset})", f"a transaction marker is cut short: {error}") from None
    return EndMarker(kind == COMMIT, coordinator_epoch)
