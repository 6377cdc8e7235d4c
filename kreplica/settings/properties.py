"""Parser of Java's ``.properties`` format that keeps the line number of each entry.

The format is that of ``java.util.Properties.load``: comments with ``#`` or ``!``; ``=``, ``:`` or white space after the
name; a backslash at the end of a line continues the line; escapes such as ``\\uXXXX``; the last entry with a name
applies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kreplica.errors import SettingsError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TOKEN = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)|([^\\]+)", re.DOTALL)
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class Entry(NamedTuple):
    """Name, value and line number, counted from 1."""

    name: str
    value: str
    line: int


def parse_properties(text: str, origin: str) -> dict[str, Entry]:
    """Parse the entries, in the order of the file.

    :param origin: source of the text for error messages, such as a path.
    :raise SettingsError: an escape is malformed; the message names the origin and the line.
    """
    entries: dict[str, Entry] = {}
    for line, content in _logical_lines(text):
        name_end = _end(_NAME, content, 0)
        try:
            name = _unescape(content[:name_end])
            value = _unescape(content[_end(_SEPARATOR, content, name_end) :])
        except ValueError as error:
            raise SettingsError(f"{origin}, line {line}: {error}") from None
        entries.pop(name, None)
        entries[name] = Entry(name, value, line)
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines with their numbers, without comments or empty lines."""
    first_number: int | None = None
    joined = ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        content = raw.lstrip(_BLANK)
        if first_number is None and (not content or content[0] in "#!"):
            continue
        continues = (len(content) - len(content.rstrip("\\"))) % 2 == 1
        joined += content[:-1] if continues else content
        first_number = number if first_number is None else first_number
        if not continues:
            yield first_number, joined
            first_number, joined = None, ""
    if first_number is not None and joined:
        yield first_number, joined


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        code, escaped, plain = match.groups()
        if escaped == "u":
            shown = text[match.start() : match.start() + 6]
            raise ValueError(rf"malformed \u escape {shown!r}: four hex digits follow \u")
        parts.append(chr(int(code, 16)) if code else _ESCAPES.get(escaped, escaped) if escaped else plain)
    try:
        # Java writes characters outside the BMP as two \u escapes.
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(r"a \u escape is half of a surrogate pair") from None
