"""What is looked for in records: a text in any case, or an expression between slashes."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.admin.http.problems import Problem
from kreplica.patterns import Automaton, PatternError, parse
from kreplica.wire.records import Record

SEARCHED_BYTES_MAX = 64 * 1024
"""Of each key, value and header: the rest of a longer one is not looked at."""

PLACES_MAX = 500
"""Of an expression: each byte costs at most so many steps."""

Search = Callable[[Record], bool]


def search_for(text: str | None) -> Search | None:
    """What tells whether a record has a text in its key, its value, or a header's name or value.

    ``/EXPRESSION/`` is an expression in RE2's syntax, found anywhere; other text is found in any case.

    :return: None where nothing is looked for: every record is wanted.
    :raise Problem: 400, for an expression that is none.
    """
    if not text:
        return None
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return _expression(text[1:-1])
    return _text(text)


def _text(text: str) -> Search:
    wanted = text.casefold()
    if wanted.isascii():
        raw = wanted.encode()
        return lambda record: any(raw in part.lower() for part in _parts(record))
    return lambda record: any(wanted in part.decode(errors="replace").casefold() for part in _parts(record))


def _expression(expression: str) -> Search:
    try:
        parse(expression)  # by itself: what is wrong is told of what was given
        automaton = Automaton(f"(?s:.*)(?:{expression})(?s:.*)", PLACES_MAX)
    except PatternError as error:
        raise Problem(
            400,
            "INVALID_REGULAR_EXPRESSION",
            f"the query parameter 'search': {error}",
            what_to_do="Write it as RE2 has it, or without slashes to look for the text itself.",
        ) from None
    return lambda record: any(automaton.matches(part.decode(errors="replace")) for part in _parts(record))


def _parts(record: Record) -> list[bytes]:
    parts = [part[:SEARCHED_BYTES_MAX] for part in (record.key, record.value) if part is not None]
    for name, value in record.headers:
        parts.append(name.encode(errors="surrogateescape")[:SEARCHED_BYTES_MAX])
        if value is not None:
            parts.append(value[:SEARCHED_BYTES_MAX])
    return parts
