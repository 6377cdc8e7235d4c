"""Grammar of message schemas: one line of text per field, with the versions that have it.

A line is ``name type versions @tag:versions =default``; all parts after the type are optional::

    topics [] 0-11 =null
      name str? 3+
      partitions []i32

* Nested fields are indented by two spaces; ``[]`` is an array of records and ``{}`` a record of the nested fields.
* Types: ``i8 i16 u16 i32 u32 i64 f64 bool uuid str bytes records``, and ``[]`` before any of them.
* ``?`` after the type: the field is nullable, in all versions or in the given ones (``str?7+``, ``str?1-3``).
* Versions: ``3``, ``3+``, ``0-4``; a field exists only in versions that its parent also has.
* ``@0``: the field has this tag in the tag section, in all versions or in those after a colon (KIP-482).
* ``=``: the default: a number, ``null``, or a string.  Without ``=``, the default is null if the field is nullable,
  otherwise the zero value of the type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kreplica.wire.structures import Array, Field, Record
from kreplica.wire.types import Blob, Fixed, Records, Text, Uuid, WireType

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
    """Parse ``3``, ``3+`` or ``0-4``; None and the empty string mean all versions."""
    if not text:
        return _ALWAYS
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return range(int(first), _ALWAYS.stop)
    return range(int(first), int(last if dash else first) + 1)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a schema text, with the lines nested below it."""

    name: str
    type: str
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: str | None
    children: list[Line] = field(default_factory=list)


def _read_line(text: str) -> Line:
    match = _LINE.fullmatch(text)
    if match is None or not match["type"]:
        raise ValueError(f"invalid schema line: {text!r}")
    return Line(
        name=match["name"],
        type=match["type"],
        versions=version_range(match["versions"]),
        nullable=version_range(match["nullable"][1:]) if match["nullable"] else range(0),
        tag=None if match["tag"] is None else int(match["tag"]),
        tagged=version_range(match["tag_versions"]),
        default=match["default"],
    )


def read_lines(text: str) -> list[Line]:
    """Parse the schema text of a message.

    :return: the top-level lines, with the lines nested below them.
    :raise ValueError: a line is invalid, or is indented by more than one level below the previous line.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    root: list[Line] = []
    levels = [root]
    for line in lines:
        level, remainder = divmod(len(line) - len(line.lstrip()) - margin, 2)
        if remainder or level >= len(levels):
            raise ValueError(f"invalid indentation: {line!r}")
        parsed_line = _read_line(line.strip())
        levels[level].append(parsed_line)
        levels[level + 1 :] = [parsed_line.children]
    return root


def _default(text: str | None, kind: WireType, nullable: bool) -> Any:
    if (text == "null" or text is None) and nullable:
        return None
    if text is None or text == "null":
        return kind.zero
    if isinstance(kind, Fixed):
        return type(kind.zero)(int(text))
    return text


class _TreeBuilder:
    """Creates the types of one version; types that are equal in all versions are shared."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible

    def record(self, lines: list[Line], *, nullable: bool = False, title: str = "") -> Record:
        fields = [self._field(line) for line in lines if self._version in line.versions]
        return Record(fields, flexible=self._flexible, nullable=nullable, title=title)

    def _field(self, line: Line) -> Field:
        nullable = self._version in line.nullable
        tag = line.tag if self._version in line.tagged else None
        kind = self._type(line.type, line, nullable)
        return Field(line.name, kind, _default(line.default, kind, nullable), tag)

    def _type(self, name: str, line: Line, nullable: bool) -> WireType:
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


def make_tree(lines: list[Line], version: int, *, flexible: bool, title: str) -> Record:
    """Create the types of one version of a message.

    :param flexible: use the encodings of KIP-482.
    :param title: name of the message.
    :raise KeyError: a type is unknown.
    """
    return _TreeBuilder(version, flexible).record(lines, title=title)


def check_field_names(lines: list[Line], value: Any, path: str) -> None:
    """Check that every name in a value exists in some version of the message.

    :param path: path of the value, for the error.
    :raise ValueError: a name exists in no version.
    """
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_field_names(lines, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        children = {line.name: line.children for line in lines}
        for name, item in value.items():
            if name not in children:
                raise ValueError(f"{path} has no field {name!r}")
            check_field_names(children[name], item, f"{path}.{name}")
