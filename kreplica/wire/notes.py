"""Control batches that carry notes of produce interceptors: in a partition's log, and not seen by its consumers.

A note stands right before what is left of the batch that it was taken from, and names that batch by its CRC: a note
whose batch does not follow was never acknowledged, and says nothing.  Kafka's clients skip control batches, and records
in them that they do not know; so does everything else that reads a log here.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import BatchHeader, Bytes
from kreplica.wire.records import Record, iter_records

NOTE = 0x6B72
"""The type of such a control record; Kafka's own are numbered from 0."""

_VERSION = 0
_KEY = Struct(">hh")
_VALUE = Struct(">h?IH")


class Note(NamedTuple):
    """What one plugin leaves.

    :param plugin: its name.
    """

    plugin: str
    data: bytes


class Notes(NamedTuple):
    """The notes of one control batch.

    :param crc: of the batch that has to follow; None where nothing was left of it.
    """

    notes: tuple[Note, ...]
    crc: int | None

    def are_of(self, following: BatchHeader | None) -> bool:
        """Whether they count, given the batch behind them."""
        return self.crc is None or (following is not None and following.crc == self.crc)


def build_notes(notes: Sequence[Note], crc: int | None, timestamp_ms: int) -> bytes:
    """The control batch."""
    key = _KEY.pack(_VERSION, NOTE)
    records = []
    for index, (plugin, data) in enumerate(notes):
        name = plugin.encode()
        value = _VALUE.pack(_VERSION, crc is not None, crc or 0, len(name)) + name + data
        records.append(Record(index, timestamp_ms, key, value))
    return build_batch(records, control=True)


def parse_notes(batch: Bytes) -> Notes | None:
    """What a control batch holds; None for those of other kinds.

    :raise ProtocolError: it is cut short.
    """
    found: list[Note] = []
    crc: int | None = None
    for record in iter_records(batch):
        value = record.value or b""
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind != NOTE:
                return None
            _, is_followed, named, length = _VALUE.unpack_from(value)
        except StructError as error:
            raise ProtocolError(f"Record(offset={record.offset})", f"a note is cut short: {error}") from None
        crc = named if is_followed else None
        name_end = _VALUE.size + length
        found.append(Note(value[_VALUE.size : name_end].decode(errors="replace"), value[name_end:]))
    return Notes(tuple(found), crc) if found else None
