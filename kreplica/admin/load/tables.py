"""Compact tables that brokers exchange: an object with one list per column.

Ten thousand rows as objects would take several times as many bytes, and a second to validate with a schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kreplica.admin.http.api import Schema
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import TIME_MS, record
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

ROWS_AT_ONCE = 200
"""Number of rows between two checks of the clock, which takes a fraction of a millisecond."""

NUMBER, NUMBER_OR_NULL, TEXT, TEXTS = "number", "number_or_null", "text", "texts"

_TYPES: Mapping[str, frozenset[type]] = {
    NUMBER: frozenset({int, float}),
    NUMBER_OR_NULL: frozenset({int, float, type(None)}),
    TEXT: frozenset({str}),
    TEXTS: frozenset({list}),
}

_ITEMS: Mapping[str, Schema] = {
    NUMBER: {"type": "number"},
    NUMBER_OR_NULL: {"type": ["number", "null"]},
    TEXT: {"type": "string"},
    TEXTS: {"type": "array", "items": {"type": "string"}},
}

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The columns of a table.

    :param columns: kind and description by name; the first column identifies a row.
    """

    columns: Mapping[str, tuple[str, str]]

    def schema(self, title: str) -> Schema:
        """Return the schema of the document; ``rows`` checks the values, because a schema would be too slow."""
        lists = {name: {"type": "array", "description": text} for name, (_, text) in self.columns.items()}
        return record({"at_ms": TIME_MS, **lists}, title=title)

    def described_schema(self, title: str) -> Schema:
        """Return the schema with the types of the values, for the description of the API."""
        lists = {
            name: {"type": "array", "items": _ITEMS[kind], "description": text}
            for name, (kind, text) in self.columns.items()
        }
        return record({"at_ms": TIME_MS, **lists}, title=title)

    async def document(self, reactor: Reactor, at_ms: int, rows: Iterable[tuple[Any, ...]]) -> Table:
        """Return the document of rows, each with the values of all columns in order; yields to the reactor."""
        lists: list[list[Any]] = [[] for _ in self.columns]
        time_slice, source = TimeSlice(reactor), iter(rows)
        while chunk := list(islice(source, ROWS_AT_ONCE)):
            for values, more in zip(lists, zip(*chunk, strict=True), strict=True):
                values += more
            if time_slice.is_over:
                await time_slice.next()
        return {"at_ms": at_ms, **dict(zip(self.columns, lists, strict=True))}

    async def rows(self, reactor: Reactor, broker_id: int, document: Table) -> list[tuple[Any, ...]]:
        """Return the rows of a document that a broker sent; yields to the reactor.

        :raise Problem: 502 for a column of the wrong length or with a value of the wrong type.
        """
        lists = [document[name] for name in self.columns]
        count = len(lists[0])
        time_slice = TimeSlice(reactor)
        rows: list[tuple[Any, ...]] = []
        for start in range(0, max(map(len, lists)), ROWS_AT_ONCE):
            slices = [values[start : start + ROWS_AT_ONCE] for values in lists]
            for (name, (kind, _)), values, whole in zip(self.columns.items(), slices, lists, strict=True):
                if len(whole) != count or not _is_valid(kind, values):
                    raise Problem(
                        502,
                        "unexpected response",
                        f"broker {broker_id}: the column {name} of its response is invalid",
                        what_to_do=f"Check that broker {broker_id} runs a compatible release of kreplica.",
                    )
            rows += zip(*slices, strict=True)
            if time_slice.is_over:
                await time_slice.next()
        return rows


def _is_valid(kind: str, values: list[Any]) -> bool:
    """Return True if values have the type of their column."""
    if not set(map(type, values)) <= _TYPES[kind]:
        return False
    return kind != TEXTS or all(type(each) is str for texts in values for each in texts)
