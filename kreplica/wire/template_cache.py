"""Templates of messages that differ only in a few numeric fields and in their records.

Fetch requests, their responses and Produce requests repeat with few changes.  The template of a parsed message
records the positions of these fields: if all other bytes of a new message are equal, only these fields are read.
The same templates build messages by filling in numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from kreplica.wire.parsing import INPUT_ERRORS
from kreplica.wire.primitives import Buffer, struct_of, uvarint_rest
from kreplica.wire.structures import Record

MARK = 0x7E5A_0100
"""Placeholder for the first numeric field of the message from which a template is made; the second has ``MARK + 1``,
and so on."""

ENTRIES_MAX = 1000
HEADS_MAX = 4
"""Maximum number of layouts of messages with records."""

TEMPLATE_BYTES_MAX = 512
"""Maximum size of a cached message, without its records."""

RECORDS_LENGTH = Struct(">i")
"""Length of records in versions without compact encodings (KIP-482)."""

_RECORDS_MARK = b"\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8"

Message = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")


class Template:
    """Message with numeric fields to fill in.

    :param data: the message, with ``MARK`` in its first numeric field, ``MARK + 1`` in the second, and so on.
    :param codes: ``struct`` codes of the numeric fields in wire order.
    :ivar struct: layout: constant bytes and numbers in turn, starting and ending with constant bytes.
    :ivar values: values of ``struct``, with the marks as the numbers.
    :ivar data: the message with the marks.
    :ivar places: positions of the numbers.
    :raise ValueError: a mark is missing from the message.
    """

    __slots__ = ("data", "places", "struct", "values")

    def __init__(self, data: bytes, codes: Sequence[str]) -> None:
        layout, at = ">", 0
        places = []
        for number, code in enumerate(codes):
            mark = struct_of(code).pack(MARK + number)
            start = data.index(mark, at)
            layout += f"{start - at}s{code}"
            places.append(start)
            at = start + len(mark)
        self.struct = Struct(f"{layout}{len(data) - at}s")
        self.values = list(self.struct.unpack(data))
        self.data, self.places = data, tuple(places)

    def fill(self, *numbers: int) -> bytes:
        """Return the message with these numbers.

        :raise struct.error: a number is out of range.
        """
        values = self.values.copy()
        values[1::2] = numbers
        return self.struct.pack(*values)


class _Entry(NamedTuple, Generic[T]):
    """Value cached for one message.

    :ivar tail: bytes after the records; None if the message has no records.
    :ivar is_compact: the length of the records is an unsigned varint of one more than the length.
    """

    value: T
    tail: bytes | None
    is_compact: bool


class TemplateCache(Generic[T, R]):
    """Bounded map from the constant bytes of messages to values.

    :param make_result: makes the result of ``find`` from a stored value, the values of the template's ``struct``, and a
        view of the message's records (None if it has none).
    """

    def __init__(self, make_result: Callable[[T, tuple[Any, ...], memoryview | None], R | None]) -> None:
        self._make_result = make_result
        self._layouts: dict[int, Struct] = {}
        self._heads: tuple[Struct, ...] = ()
        self._entries: dict[tuple[bytes, ...], _Entry[T]] = {}
        self._rejected = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, buffer: Buffer, position: int = 0) -> R | None:
        """Return the result for a message that extends to the end of the buffer; None if no template matches."""
        if self._layouts:
            layout = self._layouts.get(len(buffer) - position)
            if layout is not None:
                values = layout.unpack_from(buffer, position)
                entry = self._entries.get(values[::2])
                if entry is not None and entry[1] is None:
                    return self._make_result(entry[0], values, None)
        for head in self._heads:
            try:
                values = head.unpack_from(buffer, position)
                entry = self._entries.get(values[::2])
                if entry is None:
                    continue
                value, tail, is_compact = entry
                if tail is None:
                    continue
                start = position + head.size
                if is_compact:
                    length, start = buffer[start], start + 1
                    if length > 127:
                        length, start = uvarint_rest(buffer, start, length)
                    length -= 1
                else:
                    length, start = RECORDS_LENGTH.unpack_from(buffer, start)[0], start + 4
            except INPUT_ERRORS:
                continue  # malformed, or shorter than the template: left to the parser
            end = start + length
            if start <= end <= len(buffer) and buffer[end:] == tail:
                view = buffer if buffer.__class__ is memoryview else memoryview(buffer)
                return self._make_result(value, values, view[start:end])
        return None

    def can_add(self) -> bool:
        """Return True if another entry can be added.

        A full cache rejects ``ENTRIES_MAX`` entries before it is cleared: it adapts when the traffic changes, but does
        not thrash if more messages alternate than it can hold.  Call this method once for each entry.
        """
        if len(self._entries) < ENTRIES_MAX:
            return True
        self._rejected += 1
        if self._rejected >= ENTRIES_MAX:
            self._rejected = 0
            self._entries.clear()
        return False

    def add(self, value: T, struct: Struct, constants: tuple[bytes, ...], tail: bytes | None, *, compact: bool) -> None:
        """Add a value for a message.

        :param struct: layout of the message, or of its bytes before the length of the records.
        :param constants: constant bytes of the message in this layout.
        :param tail: bytes after the records; None if the message has no records.
        """
        if tail is None:
            self._layouts[struct.size] = struct
        else:
            self._heads = (struct, *[head for head in self._heads if head.format != struct.format])[:HEADS_MAX]
        self._entries[constants] = _Entry(value, tail, compact)

    def discard(self, constants: tuple[bytes, ...]) -> None:
        """Remove a message if it is cached."""
        self._entries.pop(constants, None)


class VaryingFields(NamedTuple):
    """Fields in which similar messages about one partition differ; fields that a version lacks are ignored.

    :param rows: names of the array of topics, and of the array of partitions in a topic.
    :param numbers: numeric fields of the message in wire order.
    :param row_numbers: numeric fields of a partition in wire order; they follow ``numbers``.
    :param records: field of a partition that holds records, after its numbers; None if it has none.
    """

    rows: tuple[str, str]
    numbers: Sequence[str]
    row_numbers: Sequence[str]
    records: str | None = None


class _Parsed(NamedTuple):
    """Parts of a parsed message; ``topic`` and ``row`` are None if it has no topics.

    Values of varying fields are present as placeholders, so that a copy keeps the order of the fields; the topics,
    partitions and records themselves are None, since records would keep a buffer alive.
    """

    message: Message
    topic: Message | None
    row: Message | None


class TemplateParser:
    """Parser of one version of a message, with a cache of templates for messages about one partition or none.

    :param parse: parses messages that match no template.
    :param build: builds a message, to find the positions of the numbers.
    """

    def __init__(
        self,
        varying: VaryingFields,
        tree: Record,
        parse: Callable[[Buffer, int], Message],
        build: Callable[[Message], bytes],
    ) -> None:
        fields = {field.name: field.type for field in tree.fields}
        topic = {field.name: field.type for field in fields[varying.rows[0]].item.fields}
        row = {field.name: field.type for field in topic[varying.rows[1]].item.fields}
        self.cache: TemplateCache[_Parsed, Message] = TemplateCache(self._assemble)
        self._topics, self._partitions = varying.rows
        self._numbers = tuple(name for name in varying.numbers if name in fields)
        self._row_numbers = tuple(name for name in varying.row_numbers if name in row)
        self._codes = [fields[name].code for name in self._numbers] + [row[name].code for name in self._row_numbers]
        self._records = varying.records
        self._is_compact = tree.flexible
        self._parse = parse
        self._build = build

    def __call__(self, buffer: Buffer, position: int = 0) -> Message:
        """Parse a message as the schema does; no two calls return the same dicts or lists."""
        message = self.cache.find(buffer, position)
        if message is None:
            message = self._parse(buffer, position)
            self._learn(buffer, position, message)
        return message

    def _assemble(self, parsed: _Parsed, values: tuple[Any, ...], records: memoryview | None) -> Message:
        known, topic, row = parsed
        message = {**known}
        at = 1
        for name in self._numbers:
            message[name] = values[at]
            at += 2
        if topic is None or row is None:
            message[self._topics] = []
            return message
        row = {**row}
        for name in self._row_numbers:
            row[name] = values[at]
            at += 2
        if records is not None and self._records is not None:
            row[self._records] = records
        message[self._topics] = [{**topic, self._partitions: [row]}]
        return message

    def _learn(self, buffer: Buffer, position: int, message: Message) -> None:
        topics = message[self._topics]
        if len(topics) > 1 or (topics and len(topics[0][self._partitions]) != 1) or not self.cache.can_add():
            return
        topic = topics[0] if topics else None
        row = topic[self._partitions][0] if topic else None
        if row and self._records in row and not row[self._records]:
            return
        template, tail = self._template(message, topic, row)
        struct = template.struct
        if struct.size + len(tail or b"") > min(TEMPLATE_BYTES_MAX, len(buffer) - position):
            return
        parsed = _Parsed(
            message | {self._topics: None},
            topic and topic | {self._partitions: None},
            row | {self._records: None} if row and self._records in row else row,
        )
        constants = struct.unpack_from(buffer, position)[::2]
        self.cache.add(parsed, struct, constants, tail, compact=self._is_compact)
        if self.cache.find(buffer, position) != message:
            self.cache.discard(constants)  # the sender encodes this message differently than our builder

    def _template(self, message: Message, topic: Message | None, row: Message | None) -> tuple[Template, bytes | None]:
        """Return the template of the message up to the length of its records, and the bytes after the records."""
        count = len(self._numbers)
        marked = message | {name: MARK + number for number, name in enumerate(self._numbers)}
        if not topic or not row:
            return Template(self._build(marked), self._codes[:count]), None
        marks: Message = {name: MARK + number for number, name in enumerate(self._row_numbers, count)}
        if self._records in row:
            marks[self._records] = _RECORDS_MARK
        marked[self._topics] = [topic | {self._partitions: [row | marks]}]
        data = self._build(marked)
        if self._records not in row:
            return Template(data, self._codes), None
        start = data.rindex(_RECORDS_MARK)
        length_size = 1 if self._is_compact else RECORDS_LENGTH.size
        return Template(data[: start - length_size], self._codes), data[start + len(_RECORDS_MARK) :]
