"""Produce requests that repeat themselves: a producer's are alike but for their records, and are parsed as such.

What comes before the length of the records is compared with what was parsed before: where it is the same, byte for
byte, it means the same, and nothing of it is looked at again.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from kreplica.wire.messages import PRODUCE
from kreplica.wire.parsing import INPUT_ERRORS
from kreplica.wire.primitives import read_uvarint

KNOWN_MAX = 1000
SIZES_MAX = 4
SIZE_MAX = 512
"""Bytes before the records that are worth to be kept."""

_LENGTH = Struct(">i")
_NO_TAGS = b"\x00\x00\x00"
"""What comes behind the records, of the partition, of its topic, and of the request, where there may be tags."""


class _Known(NamedTuple):
    """What some bytes before the length of records mean.

    :param fields: of the request, all but its topics.
    """

    fields: dict[str, Any]
    topic: str
    partition: int


class RepeatedProduce:
    """The parser of one version; shared by all connections.

    Requests of one partition, outside of transactions, are known again: no others are frequent.
    """

    def __init__(self, version: int) -> None:
        self._parse = PRODUCE.request.parser(version)
        self._is_flexible = PRODUCE.request.flexible(version)
        self._behind = _NO_TAGS if self._is_flexible else b""
        self._known: dict[bytes, _Known] = {}
        self._sizes: tuple[int, ...] = ()

    def __call__(self, frame: memoryview, position: int = 0) -> dict[str, Any]:
        """As the schema's own parser; the body is a new one each time."""
        for size in self._sizes:
            at = position + size
            known = self._known.get(bytes(frame[position:at]))
            if known is not None and (records := self._records(frame, at)) is not None:
                data = {"index": known.partition, "records": records}
                return {**known.fields, "topic_data": [{"name": known.topic, "partition_data": [data]}]}
        body = self._parse(frame, position)
        self._learn(frame, position, body)
        return body

    def _records(self, frame: memoryview, at: int) -> memoryview | None:
        """What the frame ends with, where its length stands at a position; None where it is not as expected."""
        try:
            if self._is_flexible:
                length, start = read_uvarint(frame, at)
                length -= 1
            else:
                length, start = _LENGTH.unpack_from(frame, at)[0], at + 4
        except INPUT_ERRORS:
            return None
        end = start + length
        behind = self._behind
        if length <= 0 or end + len(behind) != len(frame) or (behind and frame[end:] != behind):
            return None
        return frame[start:end]

    def _learn(self, frame: memoryview, position: int, body: dict[str, Any]) -> None:
        topics = body["topic_data"]
        if len(topics) != 1 or len(topics[0]["partition_data"]) != 1 or body.get("transactional_id") is not None:
            return
        data = topics[0]["partition_data"][0]
        records = data["records"]
        if not records:
            return
        length_size = _size_of_uvarint(len(records) + 1) if self._is_flexible else _LENGTH.size
        size = len(frame) - len(self._behind) - len(records) - length_size - position
        if not 0 < size <= SIZE_MAX or frame[len(frame) - len(self._behind) :] != self._behind:
            return
        if size not in self._sizes:
            self._sizes = (size, *self._sizes[: SIZES_MAX - 1])
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        fields = {name: value for name, value in body.items() if name != "topic_data"}
        self._known[bytes(frame[position : position + size])] = _Known(fields, topics[0]["name"], data["index"])


def _size_of_uvarint(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
