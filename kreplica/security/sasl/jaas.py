"""JAAS configurations in Kafka's settings: ``LoginModule required name="value" ...;``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """The login module and its options, whose values may be secrets."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Parse one entry.

    :raise ValueError: the text is malformed; the message contains the column but no value.
    """
    tokens: list[tuple[str, bool, int]] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise _error(text, position, "a quotation mark is missing")
        quoted = match[1] if match[1] is not None else match[2]
        plain = match[3] or match[4]
        value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        tokens.append((value, match[4] is not None, match.start(match.lastindex or 0)))
        position = match.end()
    return _entry(text, tokens)


def _entry(text: str, tokens: list[tuple[str, bool, int]]) -> JaasEntry:
    if len(tokens) < 3 or tokens[0][1] or tokens[1][0].lower() not in _FLAGS:
        raise _error(text, tokens[1][2] if len(tokens) > 1 else 0, f"expected a login module and {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    at = 2
    while tokens[at][0] != ";" or not tokens[at][1]:
        triple = tokens[at : at + 3]
        if len(triple) < 3 or triple[0][1] or triple[1][:2] != ("=", True) or triple[2][1]:
            raise _error(text, tokens[at][2], 'expected name="value", or ; at the end')
        options[triple[0][0]] = triple[2][0]
        at += 3
        if at == len(tokens):
            raise _error(text, len(text), "expected ; at the end")
    if at + 1 < len(tokens):
        raise _error(text, tokens[at + 1][2], "expected only one login module")
    return JaasEntry(tokens[0][0], options)


def _error(text: str, position: int, message: str) -> ValueError:
    blank = len(text[position:]) - len(text[position:].lstrip())
    return ValueError(f"column {position + blank + 1}: {message}")
