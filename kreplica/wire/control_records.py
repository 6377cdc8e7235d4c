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
    """Value of a transaction marker.

    :param coordinator_epoch: leader epoch of the coordinator's partition, which fences older coordinators.
    """

    committed: bool
    coordinator_epoch: int


def build_end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    """Return the control batch that ends a producer's transaction in one partition."""
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
    """Parse a control record; None if it is not a transaction marker.

    :raise ProtocolError: the record is truncated.
    """
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except StructError as error:
        raise ProtocolError(f"Record(offset={record.offset})", f"a transaction marker is truncated: {error}") from None
    return EndMarker(kind == COMMIT, coordinator_epoch)
