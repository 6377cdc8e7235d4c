"""Control batches that hold the notes of produce interceptors; consumers skip them.

A note precedes the batch that the interceptor changed, and identifies it by CRC.  If that batch does not follow, the
note was never acknowledged and is ignored.  Kafka clients skip control records of unknown types.
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
"""Control record type of notes; Kafka numbers its types from 0."""

_VERSION = 0
_KEY = Struct(">hh")
_VALUE = Struct(">h?IH")


class Note(NamedTuple):
    """Note that one plugin left about a batch."""

    plugin: str
    data: bytes


class Notes(NamedTuple):
    """The notes of one control batch.

    :param crc: CRC of the batch that must follow; None if the interceptors removed all records.
    """

    notes: tuple[Note, ...]
    crc: int | None

    def apply_to(self, following: BatchHeader | None) -> bool:
        """Return True if the notes are valid with ``following`` as the next batch."""
        return self.crc is None or (following is not None and following.crc == self.crc)


def build_notes(notes: Sequence[Note], crc: int | None, timestamp_ms: int) -> bytes:
    """Return a control batch with the notes."""
    key = _KEY.pack(_VERSION, NOTE)
    records = []
    for index, (plugin, data) in enumerate(notes):
        name = plugin.encode()
        value = _VALUE.pack(_VERSION, crc is not None, crc or 0, len(name)) + name + data
        records.append(Record(index, timestamp_ms, key, value))
    return build_batch(records, control=True)


def parse_notes(batch: Bytes) -> Notes | None:
    """Return the notes in a control batch; None if it holds other control records.

    :raise ProtocolError: a note is truncated.
    """
    notes: list[Note] = []
    crc: int | None = None
    for record in iter_records(batch):
        value = record.value or b""
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind != NOTE:
                return None
            _, is_followed, noted_crc, length = _VALUE.unpack_from(value)
        except StructError as error:
            raise ProtocolError(f"Record(offset={record.offset})", f"a note is truncated: {error}") from None
        crc = noted_crc if is_followed else None
        name_end = _VALUE.size + length
        notes.append(Note(value[_VALUE.size : name_end].decode(errors="replace"), value[name_end:]))
    return Notes(tuple(notes), crc) if notes else None
