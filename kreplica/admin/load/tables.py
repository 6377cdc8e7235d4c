"""Compact tables that brokers exchange: an object with one list per column.

Ten thousand rows as objects would take several times the bytes, and a second to validate by schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.admin.http.api import Schema
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import TIME_MS, record

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
        """Return the schema of the document; ``rows`` checks the values, because a schema does so too slowly."""
        lists = {name: {"type": "array", "description": text} for name, (_, text) in self.columns.items()}
        return record({"at_ms": TIME_MS, **lists}, title=title)

    def described_schema(self, title: str) -> Schema:
        """Return the schema with the types of the values, for the description of the API."""
        lists = {
            name: {"type": "array", "items": _ITEMS[kind], "description": text}
            for name, (kind, text) in self.columns.items()
        }
        return record({"at_ms": TIME_MS, **lists}, title=title)

    def document(self, at_ms: int, rows: Sequence[tuple[Any, ...]]) -> Table:
        """Return the document of rows, each with the values of all columns in order."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.columns)
        lists = {name: list(values) for name, values in zip(self.columns, columns, strict=True)}
        return {"at_ms": at_ms, **lists}

    def rows(self, broker_id: int, document: Table) -> list[tuple[Any, ...]]:
        """Return the rows of a document that a broker sent.

        :raise Problem: 502 for a column of the wrong length or with a value of the wrong type.
        """
        lists = [document[name] for name in self.columns]
        for (name, (kind, _)), values in zip(self.columns.items(), lists, strict=True):
            is_valid = len(values) == len(lists[0]) and set(map(type, values)) <= _TYPES[kind]
            if not is_valid or (kind == TEXTS and any(type(each) is not str for texts in values for each in texts)):
                raise Problem(
                    502,
                    "unexpected response",
                    f"broker {broker_id}: the column {name} of its response is not valid",
                    what_to_do=f"Check that broker {broker_id} runs a compatible release of kreplica.",
                )
        return list(zip(*lists, strict=True))
