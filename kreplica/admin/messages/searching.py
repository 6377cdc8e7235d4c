"""Searches records for text, ignoring case, or for a regular expression between slashes."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.admin.http.problems import Problem
from kreplica.patterns import Automaton, PatternError, parse
from kreplica.wire.records import Record

SEARCHED_BYTES_MAX = 64 * 1024
"""Maximum searched size of a key, value or header; the rest of a longer one is ignored."""

STATES_MAX = 500
"""Maximum number of NFA states of an expression, which bounds the cost per byte."""

Search = Callable[[Record], bool]


def search_for(text: str | None) -> Search | None:
    """Return a predicate that searches the key, the value and the headers of a record.

    ``/EXPRESSION/`` is an RE2 expression, matched anywhere; other text is matched case-insensitively.

    :return: None for an empty search, which matches every record.
    :raise Problem: 400 for an invalid expression.
    """
    if not text:
        return None
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return _expression(text[1:-1])
    return _text(text)


def _text(text: str) -> Search:
    folded = text.casefold()
    if folded.isascii():
        raw = folded.encode()
        return lambda record: any(raw in part.lower() for part in _parts(record))
    return lambda record: any(folded in part.decode(errors="replace").casefold() for part in _parts(record))


def _expression(expression: str) -> Search:
    try:
        parse(expression)  # compile it alone first, so that an error refers to the given expression
        automaton = Automaton(f"(?s:.*)(?:{expression})(?s:.*)", STATES_MAX)
    except PatternError as error:
        raise Problem(
            400,
            "INVALID_REGULAR_EXPRESSION",
            f"the query parameter 'search': {error}",
            what_to_do="Use RE2 syntax, or omit the slashes to search for the text itself.",
        ) from None
    return lambda record: any(automaton.matches(part.decode(errors="replace")) for part in _parts(record))


def _parts(record: Record) -> list[bytes]:
    parts = [part[:SEARCHED_BYTES_MAX] for part in (record.key, record.value) if part is not None]
    for name, value in record.headers:
        parts.append(name.encode(errors="surrogateescape")[:SEARCHED_BYTES_MAX])
        if value is not None:
            parts.append(value[:SEARCHED_BYTES_MAX])
    return parts
