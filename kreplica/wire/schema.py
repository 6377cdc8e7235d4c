"""Messages as text: one line per field with the versions that have it; each version compiles when first used.

A line is ``name type versions @tag:versions =default``, of which only the first two must be there::

    topics [] 0-11 =null
      name str? 3+
      partitions []i32

* Indentation, two blanks a level, nests; ``[]`` is an array and ``{}`` a record of what is nested below.
* Types: ``i8 i16 u16 i32 u32 i64 f64 bool uuid str bytes records``, and ``[]`` before any of them.
* ``?`` behind the type: null is a value, in all versions or in those that follow (``str?7+``, ``str?1-3``).
* Versions: ``3``, ``3+``, ``0-4``; a field belongs to the versions that its parent has too.
* ``@0``: the field stands in the tag section, in all versions or those behind a colon (KIP-482).
* ``=``: what the field is when not given: a number, ``null``, or text; otherwise null if that is a value, or else the
  type's zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.wire.building import VALUE_ERRORS, Builder, compile_builder
from kreplica.wire.parsing import INPUT_ERRORS, compile_parser
from kreplica.wire.primitives import Buffer
from kreplica.wire.types import Array, Blob, Field, Fixed, Record, Records, Text, Uuid, WireType

MessageParser = Callable[..., dict[str, Any]]
MessageBuilder = Callable[[dict[str, Any]], bytes]

EXPLAINED_ELEMENTS_MAX = 10_000
"""Elements of a malformed message that are parsed again, slowly, to say where it is wrong: a tenth of a second."""

_NUMBERS = {
    name: Fixed(code)
    for name, code in {
        "i8": "b", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "f64": "d", "bool": "?",
    }.items()
}  # fmt: skip
_UUID = Uuid()
_LINE = re.compile(
    r"(?P<indent> *)(?P<name>\w+) (?P<type>(\[\])?(\{\}|\w+)?)(?P<nullable>\?[\d+-]*)?"
    r"( (?P<versions>[\d+-]+))?( @(?P<tag>\d+)(:(?P<tag_versions>[\d+-]+))?)?( =(?P<default>\S+))?"
)
_ALWAYS = range(1 << 15)


def version_range(text: str | None) -> range:
    """Read ``3``, ``3+`` or ``0-4``; None and the empty text are all versions."""
    if not text:
        return _ALWAYS
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return range(int(first), _ALWAYS.stop)
    return range(int(first), int(last if dash else first) + 1)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the text, with those nested below it."""

    name: str
    type: str
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: str | None
    children: list[_Line] = field(default_factory=list)


def _read_line(text: str) -> _Line:
    match = _LINE.fullmatch(text)
    if match is None or not match["type"]:
        raise ValueError(f"not a line of a schema: {text!r}")
    return _Line(
        name=match["name"],
        type=match["type"],
        versions=version_range(match["versions"]),
        nullable=version_range(match["nullable"][1:]) if match["nullable"] else range(0),
        tag=None if match["tag"] is None else int(match["tag"]),
        tagged=version_range(match["tag_versions"]),
        default=match["default"],
    )


def _read_lines(text: str) -> list[_Line]:
    lines = [line for line in text.splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    root: list[_Line] = []
    levels = [root]
    for line in lines:
        level, odd = divmod(len(line) - len(line.lstrip()) - margin, 2)
        if odd or level >= len(levels):
            raise ValueError(f"indentation does not fit: {line!r}")
        read = _read_line(line.strip())
        levels[level].append(read)
        levels[level + 1 :] = [read.children]
    return root


def _default(text: str | None, kind: WireType, nullable: bool) -> Any:
    if (text == "null" or text is None) and nullable:
        return None
    if text is None or text == "null":
        return kind.zero
    if isinstance(kind, Fixed):
        return type(kind.zero)(int(text))
    return text


class _Tree:
    """Makes the types of one version."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible

    def record(self, lines: list[_Line], *, nullable: bool = False, title: str = "") -> Record:
        fields = [self._field(line) for line in lines if self._version in line.versions]
        return Record(fields, flexible=self._flexible, nullable=nullable, title=title)

    def _field(self, line: _Line) -> Field:
        nullable = self._version in line.nullable
        tag = line.tag if self._version in line.tagged else None
        kind = self._type(line.type, line, nullable)
        return Field(line.name, kind, _default(line.default, kind, nullable), tag)

    def _type(self, name: str, line: _Line, nullable: bool) -> WireType:
        if name.startswith("[]"):
            item = self._type(name[2:], line, False) if name[2:] else self.record(line.children)
            return Array(item, self._flexible, nullable)
        if name == "{}":
            return self.record(line.children, nullable=nullable)
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name == "uuid":
            return _UUID
        return {"str": Text, "bytes": Blob, "records": Records}[name](self._flexible, nullable)


class Schema:
    """One message in all its versions.  What is compiled is kept, for as long as the schema lives.

    :param name: the message's name, with which the paths of errors start.
    :param versions: the lowest and the highest.
    :param flexible_from: the first version with the encodings of KIP-482, or None.
    :param text: the fields, see the module.
    """

    def __init__(self, name: str, versions: tuple[int, int], flexible_from: int | None, text: str) -> None:
        self.name = name
        self.versions = range(versions[0], versions[1] + 1)
        self.flexible_from = flexible_from
        self._text = text
        self._lines: list[_Line] | None = None
        self._trees: dict[int, Record] = {}
        self._parsers: dict[int, MessageParser] = {}
        self._builders: dict[int, MessageBuilder] = {}
        self._pieces: dict[int, Builder] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.name} {self.versions[0]}-{self.versions[-1]}>"

    def flexible(self, version: int) -> bool:
        """Whether that version has the encodings of KIP-482."""
        return self.flexible_from is not None and version >= self.flexible_from

    def tree(self, version: int) -> Record:
        """The construct of one version.

        :raise ProtocolError: when the message has no such version.
        """
        tree = self._trees.get(version)
        if tree is None:
            if version not in self.versions:
                known = f"{self.versions[0]} to {self.versions[-1]}"
                raise ProtocolError(self.name, f"version {version} is not within {known}")
            if self._lines is None:
                self._lines = _read_lines(self._text)
            made = _Tree(version, self.flexible(version))
            tree = self._trees[version] = made.record(self._lines, title=self.name)
        return tree

    def parse(self, version: int, buffer: Buffer, offset: int = 0) -> dict[str, Any]:
        """Parse a message.

        :param offset: where in the buffer it starts.  What follows it in the buffer is ignored.
        :return: the fields that this version has; records are views of the buffer, other bytes are copies.
        :raise ProtocolError: when the bytes are not such a message; it names the field.
        """
        return self.parser(version)(buffer, offset)

    def build(self, version: int, value: dict[str, Any]) -> bytes:
        """Build a message from what ``parse`` gives; missing fields are their default, unknown ones are ignored.

        :raise ProtocolError: when a value does not fit its field; it names the field.
        """
        return self.builder(version)(value)

    def parser(self, version: int) -> MessageParser:
        """``parse`` of one version: a function of the buffer and, optionally, the offset."""
        parser = self._parsers.get(version)
        if parser is None:
            parser = self._parsers[version] = self._make_parser(self.tree(version))
        return parser

    def builder(self, version: int) -> MessageBuilder:
        """``build`` of one version."""
        builder = self._builders.get(version)
        if builder is None:
            builder = self._builders[version] = self._make_builder(version)
        return builder

    def build_pieces(self, version: int, value: dict[str, Any], prefix: bytes = b"") -> list[Any]:
        """Build a message whose records may be anything with a ``size`` in bytes, such as a range of a file.

        :param prefix: bytes to stand before the message, in the first piece.
        :return: runs of bytes; between them, in place, records of 4 KiB and more, and those objects.
        """
        pieces, apart = self._pieces_of(version)(value)
        result: list[Any] = []
        start = 0
        for index in apart:
            result.append(b"".join((prefix, *pieces[start:index])))
            result.append(pieces[index])
            prefix, start = b"", index + 1
        if start < len(pieces) or prefix:
            result.append(b"".join((prefix, *pieces[start:])))
        return result

    def parse_uncompiled(self, version: int, buffer: Buffer, offset: int = 0) -> dict[str, Any]:
        """``parse`` by the construct itself: slow; what says what is wrong with a message."""
        value: dict[str, Any] = self.tree(version).parse(memoryview(buffer)[offset:])
        return value

    def build_uncompiled(self, version: int, value: dict[str, Any]) -> bytes:
        """``build`` by the construct itself: slow; what says what is wrong with a value.

        :raise ValueError: also at a name that no version of this message has.
        """
        if self._lines is None:
            self.tree(version)
        _refuse_unknown(self._lines or [], value, self.name)
        data: bytes = self.tree(version).build(value)
        return data

    def _make_parser(self, tree: Record) -> MessageParser:
        parse = compile_parser(tree)

        def parse_message(buffer: Buffer, offset: int = 0) -> dict[str, Any]:
            try:
                value: dict[str, Any] = parse(buffer, offset)[0]
                return value
            except INPUT_ERRORS:
                pass
            explained: dict[str, Any] = tree.parse(memoryview(buffer)[offset:], patience=EXPLAINED_ELEMENTS_MAX)
            return explained

        return parse_message

    def _make_builder(self, version: int) -> MessageBuilder:
        pieces_of = self._pieces_of(version)
        join = b"".join

        def build_message(value: dict[str, Any]) -> bytes:
            pieces = pieces_of(value)[0]
            try:
                return join(pieces)
            except TypeError:
                return self.build_uncompiled(version, value)

        return build_message

    def _pieces_of(self, version: int) -> Builder:
        """The compiled builder: the strict one first, since most callers give all fields."""
        pieces = self._pieces.get(version)
        if pieces is not None:
            return pieces
        tree = self.tree(version)
        strict = compile_builder(tree, lenient=False)
        lenient: Builder | None = None

        def build_pieces(value: dict[str, Any]) -> tuple[list[Any], list[int]]:
            nonlocal lenient
            try:
                return strict(value)
            except KeyError:
                pass
            except VALUE_ERRORS:
                return [self.build_uncompiled(version, value)], []
            if lenient is None:
                lenient = compile_builder(tree)
            try:
                return lenient(value)
            except VALUE_ERRORS:
                return [self.build_uncompiled(version, value)], []

        self._pieces[version] = build_pieces
        return build_pieces


def _refuse_unknown(lines: list[_Line], value: Any, path: str) -> None:
    """Look for names that are not in the text, at any version."""
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_unknown(lines, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        children = {line.name: line.children for line in lines}
        for name, item in value.items():
            if name not in children:
                raise ValueError(f"{path}: has no field {name!r}")
            _refuse_unknown(children[name], item, f"{path}.{name}")
