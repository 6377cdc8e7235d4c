"""Messages that repeat themselves: about one partition, or none, and alike but for some numbers, and for records.

Who fetches says the same again and again, and so do the answers: what differs is where it is.  Such a message is known
again by the bytes around its numbers: where they are those of a message that was parsed, they mean the same, and
nothing of them is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from kreplica.wire.forms import MARK, Form
from kreplica.wire.parsing import INPUT_ERRORS
from kreplica.wire.primitives import Buffer, read_uvarint
from kreplica.wire.structures import Record

KNOWN_MAX = 1000
HEADS_MAX = 2
SIZE_MAX = 512
"""Bytes, records left out, that are worth to be kept."""

_LENGTH = Struct(">i")
_RECORDS = b"\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8"
"""Stand in the place of records while a message is learnt."""

Message = dict[str, Any]


class Repeats(NamedTuple):
    """In what a message differs from others that are like it; fields that its version does not have are left out.

    :param rows: the names of the array of topics, and of the array of partitions in a topic.
    :param numbers: fields of the message, in their order on the wire.
    :param row_numbers: fields of a partition, likewise; they are behind the others.
    :param records: the field of a partition that holds records, behind its numbers; None where there is none.
    """

    rows: tuple[str, str]
    numbers: Sequence[str]
    row_numbers: Sequence[str]
    records: str | None = None


class _Layout(NamedTuple):
    """Where numbers stand: in a whole message without records, or before the length of the records.

    :param struct: reads bytes that are the same in all such messages, a number, again such bytes, and so on.
    :param make: the message, of what is known, of what was read, and of the records.
    """

    struct: Struct
    make: Callable[[Message, Message, Message, tuple[Any, ...], memoryview | None], Message]


class _Known(NamedTuple):
    """What was parsed: its numbers are still in there, to be replaced; in the places of others is None.

    :ivar message: without topics.
    :ivar topic: without partitions.
    :ivar row: without records, which would hold on to a buffer.
    """

    message: Message
    topic: Message
    row: Message


class KnownAgain:
    """The parser of one version of a message that repeats itself; shared by all who parse it, on any thread.

    :param parse: the parser of whatever is not known.
    :param build: the builder, which shows where the numbers are.
    """

    def __init__(
        self,
        repeats: Repeats,
        tree: Record,
        parse: Callable[[Buffer, int], Message],
        build: Callable[[Message], bytes],
    ) -> None:
        fields = {field.name: field.type for field in tree.fields}
        topic = {field.name: field.type for field in fields[repeats.rows[0]].item.fields}
        row = {field.name: field.type for field in topic[repeats.rows[1]].item.fields}
        self._topics, self._partitions = repeats.rows
        self._numbers = tuple(name for name in repeats.numbers if name in fields)
        self._row_numbers = tuple(name for name in repeats.row_numbers if name in row)
        self._codes = [fields[name].code for name in self._numbers] + [row[name].code for name in self._row_numbers]
        self._records = repeats.records
        self._is_compact = tree.flexible
        self._parse = parse
        self._build = build
        self._layouts: dict[int, _Layout] = {}
        self._heads: tuple[_Layout, ...] = ()
        self._known: dict[tuple[bytes, ...], _Known] = {}
        self._unlearnt = 0

    def __call__(self, buffer: Buffer, position: int = 0) -> Message:
        """As the schema's own parser; the message, its topic and its row are new ones each time."""
        message = self._find(buffer, position)
        if message is None:
            message = self._parse(buffer, position)
            self._learn(buffer, position, message)
        return message

    def _find(self, buffer: Buffer, position: int) -> Message | None:
        """What a message means, where it is known."""
        size = len(buffer)
        layout = self._layouts.get(size - position)
        if layout is not None:
            values = layout.struct.unpack_from(buffer, position)
            known = self._known.get(values[::2])
            if known is not None:
                return layout.make(*known, values, None)
        for head in self._heads:
            try:
                values = head.struct.unpack_from(buffer, position)
                start, end = self._records_at(buffer, position + head.struct.size)
            except INPUT_ERRORS:
                continue
            if start <= end <= size <= end + SIZE_MAX:
                known = self._known.get((*values[::2], bytes(buffer[end:])))
                if known is not None:
                    return head.make(*known, values, memoryview(buffer)[start:end])
        return None

    def _records_at(self, buffer: Buffer, position: int) -> tuple[int, int]:
        """Where records begin and end whose length stands at a position."""
        if self._is_compact:
            length, start = read_uvarint(buffer, position)
            return start, start + length - 1
        length = _LENGTH.unpack_from(buffer, position)[0]
        return position + 4, position + 4 + length

    # --- learning ---

    def _learn(self, buffer: Buffer, position: int, message: Message) -> None:
        topics = message[self._topics]
        if len(topics) > 1 or (topics and len(topics[0][self._partitions]) != 1) or not self._has_room():
            return
        topic = topics[0] if topics else {}
        row = topic[self._partitions][0] if topic else {}
        has_records = self._records in row
        if has_records and not row[self._records]:
            return
        form, behind = self._form(message, topic, row)
        struct = form.struct
        if struct.size + len(behind) > min(SIZE_MAX, len(buffer) - position):
            return
        layout = _Layout(struct, self._maker(bool(topic), has_records))
        key = struct.unpack_from(buffer, position)[::2]
        if not has_records:
            self._layouts[struct.size] = layout
        else:
            key = (*key, behind)
            self._heads = (layout, *[head for head in self._heads if head.struct.format != struct.format])[:HEADS_MAX]
        self._known[key] = _Known(
            message | {self._topics: None},
            topic | {self._partitions: None},
            row | {self._records: None} if has_records else row,
        )
        if self._find(buffer, position) != message:
            self._known.pop(key, None)  # it says something in another way than the builder would

    def _has_room(self) -> bool:
        """Whether one more may be kept; all are forgotten now and then, where there are too many to be kept."""
        if len(self._known) < KNOWN_MAX:
            return True
        self._unlearnt += 1
        if self._unlearnt >= KNOWN_MAX:
            self._unlearnt = 0
            self._known.clear()
        return False

    def _form(self, message: Message, topic: Message, row: Message) -> tuple[Form, bytes]:
        """See where numbers and records are.

        :return: such a message as far as it has no records, and the bytes behind those.
        """
        count = len(self._numbers)
        marked = message | {name: MARK + number for number, name in enumerate(self._numbers)}
        if topic:
            marks: Message = {name: MARK + number for number, name in enumerate(self._row_numbers, count)}
            if self._records in row:
                marks[self._records] = _RECORDS
            marked[self._topics] = [topic | {self._partitions: [row | marks]}]
        data, codes = self._build(marked), self._codes if topic else self._codes[:count]
        if self._records not in row:
            return Form(data, codes), b""
        start = data.rindex(_RECORDS)
        length_size = 1 if self._is_compact else _LENGTH.size
        return Form(data[: start - length_size], codes), data[start + len(_RECORDS) :]

    def _maker(self, has_topic: bool, has_records: bool) -> Callable[..., Message]:
        """The function that puts a message together."""
        count = len(self._numbers)
        fields = "".join(f", {name!r}: values[{2 * at + 1}]" for at, name in enumerate(self._numbers))
        if has_topic:
            row = "".join(f", {name!r}: values[{2 * at + 1}]" for at, name in enumerate(self._row_numbers, count))
            row += f", {self._records!r}: records" if has_records else ""
            fields += f", {self._topics!r}: [{{**topic, {self._partitions!r}: [{{**row{row}}}]}}]"
        else:
            fields += f", {self._topics!r}: []"
        source = f"lambda message, topic, row, values, records: {{**message{fields}}}"
        make: Callable[..., Message] = eval(compile(source, "<parser of what is known>", "eval"))
        return make
