"""Columns of a list, and the query parameters that choose them.

A request names the columns that it needs, so that a cheap request stays cheap: other columns are not computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.admin.http.api import Call, Parameter, Schema
from kreplica.admin.http.problems import SHOWN_MAX, Problem, similar_name
from kreplica.admin.http.schemas import COUNT, STRING, listing, nullable, record
from kreplica.admin.lists.conditions import SYNTAX, Condition, kind_of, parse_conditions

FIELDS_LENGTH_MAX, FILTER_LENGTH_MAX, SORT_LENGTH_MAX = 600, 400, 100
"""Maximum lengths of parameters; percent-encoded, all of them fit in the first line of a request."""

PAGES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list.

    :param source: name of the source of its values; empty if they are in memory.
    :param is_default: True if the column is part of the response to a request that names no columns.
    """

    name: str
    schema: Schema
    source: str = ""
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns, conditions and order of a request.

    :param fields: names of the columns in the response; the key is the first one.
    :param sources: the sources of all columns that the request needs.
    """

    fields: tuple[str, ...]
    conditions: Sequence[Condition]
    sort: str
    descending: bool
    sources: Collection[str]

    def needs(self, source: str) -> bool:
        """Return True if columns of a source are shown, filtered or used for sorting."""
        return source in self.sources


class Columns:
    """The columns of one list.

    :param key: name of the column that identifies a row, and by which rows are sorted by default.
    """

    def __init__(self, key: str, columns: Sequence[Column]) -> None:
        self.key = key
        self._columns = {column.name: column for column in columns}
        self._comparable = {column.name: column.schema for column in columns if kind_of(column.schema) is not None}

    @property
    def names(self) -> Sequence[str]:
        """The names of all columns."""
        return tuple(self._columns)

    def parameters(self) -> Sequence[Parameter]:
        """Return the query parameters of the list, without ``limit`` and ``after``."""
        optional_columns = [column.name for column in self._columns.values() if not column.is_default]
        sort = f"A column, preceded by `-` for descending order; unknown values come last. Default: `{self.key}`."
        number = {"type": "integer", "minimum": 1, "maximum": PAGES_MAX}
        fields = "The columns of the response, separated by commas."
        if optional_columns:
            fields += f" Not included by default: {', '.join(optional_columns)}."
        return (
            Parameter("fields", _text(FIELDS_LENGTH_MAX), fields),
            Parameter("sort", _text(SORT_LENGTH_MAX), sort),
            Parameter("filter", _text(FILTER_LENGTH_MAX), SYNTAX),
            Parameter("page", number, "Number of the page, which has `limit` entries; not allowed with `after`."),
        )

    def row_schema(self, title: str) -> Schema:
        """Return the schema of a row; columns that were not requested are absent."""
        members = {column.name: column.schema for column in self._columns.values()}
        return record(members, title=title, optional=[name for name in members if name != self.key])

    def page_schema(self, name: str, title: str, **members: Schema) -> Schema:
        """Return the schema of a page of the list."""
        after = {**nullable(STRING), "description": "`after` of the next page; null on the last page, and if the "
                 f"list is not sorted by {self.key}."}  # fmt: skip
        total = {**COUNT, "description": "Number of entries that match, on all pages."}
        problems = {**listing(STRING), "description": "A sentence for each broker that did not respond."}
        rows = listing(self.row_schema(title))
        return record({name: rows, "next": after, "total": total, "problems": problems, **members})

    def selection(self, call: Call) -> Selection:
        """Parse the parameters of a request.

        :raise Problem: 400, with the unknown column and the most similar one.
        """
        query = call.query
        fields = self._fields(query.get("fields"))
        sort_text = query.get("sort") or self.key
        sort, descending = sort_text.removeprefix("-"), sort_text.startswith("-")
        if sort not in self._comparable:
            raise self._unknown("sort", sort)
        text = query.get("filter")
        conditions = parse_conditions(text, self._comparable, self._unknown) if text else []
        if query.get("after") is not None and (sort_text != self.key or query.get("page") is not None):
            raise Problem(
                400,
                "INVALID_REQUEST",
                f"after: this parameter requires a list sorted by {self.key}",
                what_to_do="Use the parameter page.",
            )
        used = (*fields, sort, *(condition.column for condition in conditions))
        sources = {self._columns[name].source for name in used}
        return Selection(fields, conditions, sort, descending, frozenset(sources))

    def _fields(self, text: str | None) -> tuple[str, ...]:
        if text is None:
            return tuple(column.name for column in self._columns.values() if column.is_default)
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in self._columns:
                raise self._unknown("fields", name)
        return tuple(dict.fromkeys((self.key, *names)))

    def _unknown(self, parameter: str, name: str) -> Problem:
        known: list[Any] = list(self._columns if parameter == "fields" else self._comparable)
        advice = similar_name(name, known) or f"Columns: {', '.join(known)}."
        return Problem(400, "INVALID_REQUEST", f"{parameter}: unknown column {name[:SHOWN_MAX]!r}", what_to_do=advice)


def _text(length_max: int) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": length_max}
