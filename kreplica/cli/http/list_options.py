"""Options and columns of the commands that print long lists: fields, sort order, filters and limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.http.session import PAGE, Session
from kreplica.cli.terminal.screen import Screen, bytes_text, seconds_text

if TYPE_CHECKING:
    from kreplica.cli.http.rest import Document

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of a printed list.

    :param text: returns the cell of a row.
    :param fields: names of the fields of the REST API that ``text`` uses.
    """

    title: str
    text: Callable[[Row], object]
    fields: Sequence[str]


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of one command.

    :param fields: names of the printed columns; empty for the default ones.
    """

    fields: Sequence[str]
    sort: str | None
    condition: str | None
    limit: int | None


class ListColumns:
    """The columns of one list.

    :param columns: by their names in ``--fields``.
    :param default: names of the columns that are printed without ``--fields``.
    :param example: example of conditions for ``--filter``.
    """

    def __init__(self, columns: Mapping[str, ListColumn], default: Sequence[str], *, example: str) -> None:
        self._columns = columns
        self._default = default
        self._example = example

    def options(self, command: Callable[..., None]) -> Callable[..., None]:
        """Add the options to a command, which receives them as ``options``."""

        @wraps(command)
        def run(*args: Any, fields: str | None, sort: str | None, condition: str | None, limit: int | None,
                **others: Any) -> None:  # fmt: skip
            names = [name.strip() for name in fields.split(",")] if fields is not None else []
            command(*args, options=ListOptions(names, sort, condition, limit), **others)

        for option in reversed(
            (
                click.option("--fields", metavar="NAMES",
                             help=f"Columns, separated by commas: {', '.join(self._columns)}."),
                click.option("--sort", metavar="FIELD", help="Sort by a column; -FIELD for descending order."),
                click.option("--filter", "condition", metavar="CONDITIONS",
                             help=f"Only rows that meet all conditions, for example '{self._example}'.{self._note()}"),
                limit_option,
            )
        ):  # fmt: skip
            run = option(run)
        return run

    def fetch(
        self, session: Session, path: str, member: str, options: ListOptions, query: Mapping[str, Any] | None = None
    ) -> Document:
        """Return the list with the rows of all pages, up to the limit."""
        columns = self._selected_columns(options)
        fields = ",".join(dict.fromkeys(field for column in columns for field in column.fields))
        whole = {**(query or {}), "fields": fields, "sort": options.sort, "filter": options.condition, **PAGE}
        return session.get_all(path, member, whole, options.limit)

    def print(self, screen: Screen, rows: Sequence[Row], options: ListOptions, *, empty_text: str) -> None:
        """Print the rows as a table."""
        columns = self._selected_columns(options)
        titles = [column.title for column in columns]
        screen.table(titles, [[column.text(row) for column in columns] for row in rows], empty_text=empty_text)

    def _note(self) -> str:
        """Return a hint that names the fields to filter and sort by, for each column that combines several fields."""
        combined = {name: column.fields for name, column in self._columns.items() if name not in column.fields}
        hint = " To filter or sort by {}, use its fields {}."
        return "".join(hint.format(name, ", ".join(fields)) for name, fields in combined.items())

    def _selected_columns(self, options: ListOptions) -> list[ListColumn]:
        return [self._columns.get(name) or plain(name) for name in options.fields or self._default]


limit_option = click.option("--limit", type=click.IntRange(min=1), help="Maximum number of rows.  [default: all]")


def print_problems(screen: Screen, document: Document) -> None:
    """Print which brokers did not respond; their values are missing from the list."""
    if document.get("problems"):
        screen.line("Incomplete: some brokers did not respond.", "bold")
        for problem in document["problems"]:
            screen.line(f"  {problem}")


# --- cells -----------------------------------------------------------------------------------------------------------


def plain(name: str, title: str | None = None) -> ListColumn:
    """Return a column that prints a field unchanged."""
    return ListColumn(title or name.upper().replace("_", " "), lambda row: row.get(name), (name,))


def size(name: str, title: str) -> ListColumn:
    """Return a column for a number of bytes."""
    return ListColumn(title, lambda row: bytes_text(row.get(name)), (name,))


def rate(name: str, title: str) -> ListColumn:
    """Return a column for bytes per second."""

    def text(row: Row) -> str | None:
        value = bytes_text(row.get(name))
        return None if value is None else f"{value}/s"

    return ListColumn(title, text, (name,))


def duration(name: str, title: str) -> ListColumn:
    """Return a column for a duration in milliseconds; -1 means no limit."""

    def text(row: Row) -> str | None:
        value = row.get(name)
        return "unlimited" if value == -1 else None if value is None else duration_text(value)

    return ListColumn(title, text, (name,))


_MINUTES_PER_DAY = 24 * 60


def duration_text(milliseconds: int) -> str:
    """Format a duration: ``250 ms``, ``45 s``, ``3 min``, ``2 h 5 min``, ``7 d``."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if round(milliseconds / 60_000) >= _MINUTES_PER_DAY:
        days, hours = divmod(round(milliseconds / 3_600_000), 24)
        return f"{days} d {hours} h" if hours else f"{days} d"
    return (seconds_text(milliseconds / 1000) or "").removesuffix(" 0 min")
