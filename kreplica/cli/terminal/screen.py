"""Text output: lines and tables fitted to the terminal's width; plain text if standard output is not a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

WIDTH_WITHOUT_TERMINAL = 1000
"""Wider than any row, so that lines are not wrapped for programs that read the output."""

PROSE_WIDTH_MIN = 20

WRAPPED_ROWS_MAX = 200
"""Longer tables are not fitted to the width of the terminal: fitting takes half a millisecond per row."""

NO_VALUE = "-"

SEPARATOR = "  "

PROBLEM = "bold red"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Screen:
    """Standard output."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._is_terminal = self._console.is_terminal

    def line(self, text: str | Text = "", style: str = "") -> None:
        """Print a line of text."""
        self._print(Text(escape_controls(text), style) if isinstance(text, str) else text)

    def pairs(self, rows: Iterable[tuple[str, object]]) -> None:
        """Print names and values; a pair whose value is None is omitted."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in rows:
            if value is not None:
                grid.add_row(name, _cell(value))
        self._print(grid)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty_text: str, prose: Sequence[str] = ("",)
    ) -> None:
        """Print a table; columns of numbers are aligned to the right.

        Names and numbers are never wrapped within their cell; if the terminal is too narrow, whole lines wrap.

        :param empty_text: text that is printed if there are no rows.
        :param prose: titles of the columns whose text may be wrapped.
        """
        rows = list(rows)
        if not rows:
            self.line(empty_text)
            return
        if not self._is_terminal or len(rows) > WRAPPED_ROWS_MAX:
            click.echo("\n".join(_lines(columns, rows, styled=self._is_terminal and not self._console.no_color)))
            return
        rich_table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for index, title in enumerate(columns):
            cells = [row[index] for row in rows if row[index] is not None]
            right = bool(cells) and all(map(_is_number, cells))
            longest = max(len(title), *(_cell(row[index]).cell_len for row in rows))
            rich_table.add_column(title, justify="right" if right else "left", overflow="fold",
                                  min_width=min(longest, PROSE_WIDTH_MIN) if title in prose else longest)  # fmt: skip
        for row in rows:
            rich_table.add_row(*map(_cell, row))
        self._print(rich_table)

    def _print(self, renderable: Table | Text) -> None:
        if self._is_terminal:
            needed = Measurement.get(self._console, self._console.options, renderable).minimum
            self._console.print(renderable, width=max(needed, self._console.width), crop=False, soft_wrap=False)
            return
        text = io.StringIO()
        Console(file=text, width=WIDTH_WITHOUT_TERMINAL, highlight=False).print(renderable)
        click.echo("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def problem_text(value: object, *, when: bool = True) -> Text:
    """Return a value, highlighted as a problem if ``when`` is True."""
    return Text(_words(value), style=PROBLEM if when else "")


def escape_controls(text: str) -> str:
    """Return a text with control characters escaped: names and records are not trusted."""
    return _CONTROL.sub(lambda found: "\n" if found[0] == "\n" else f"\\x{ord(found[0]):02x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line with control characters escaped."""
    click.echo(escape_controls(text), err=err)


def time_text(at_ms: int | None) -> str | None:
    """Format a time with milliseconds, in UTC as in the brokers' texts; None if unknown or negative."""
    if at_ms is None or at_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(f"%Y-%m-%d %H:%M:%S.{at_ms % 1000:03} UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms since 1970"


def iso_time_text(at_ms: int) -> str:
    """Format a time as ``2027-01-31T08:30:00.000+00:00``; as milliseconds if it is outside Python's calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def bytes_text(size: float | None) -> str | None:
    """Format a size with its unit: ``1.5 GiB``; None stays None."""
    if size is None:
        return None
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def seconds_text(seconds: float | None) -> str | None:
    """Format a duration: ``45 s``, ``3 min``, ``2 h 5 min``; None stays None."""
    if seconds is None:
        return None
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def count_text(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 move``, ``2 moves``."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def cordoned_text(brokers: Sequence[int]) -> str:
    """Return a sentence about one or more cordoned brokers."""
    if len(brokers) == 1:
        return f"Broker {brokers[0]} is cordoned: it gets no new replicas."
    return f"Brokers {', '.join(map(str, brokers[:-1]))} and {brokers[-1]} are cordoned: they get no new replicas."


def _lines(columns: Sequence[str], rows: Sequence[Sequence[object]], *, styled: bool) -> list[str]:
    """Return the lines of a table, without wrapped cells.

    :param styled: highlight the titles and problems.
    """
    lists = []
    for index, title in enumerate(columns):
        values = [row[index] for row in rows]
        texts = [value.plain if isinstance(value, Text) else _words(value) for value in values]
        present = [value for value in values if value is not None]
        lists.append(_align([title, *texts], right=bool(present) and all(map(_is_number, present))))
    lines = [SEPARATOR.join(cells).rstrip() for cells in zip(*lists, strict=True)]
    if styled:
        lines[0] = click.style(lines[0], bold=True)
        for number, row in enumerate(rows, 1):
            if any(isinstance(value, Text) and value.style == PROBLEM for value in row):
                lines[number] = _highlight([cells[number] for cells in lists], row)
    return lines


def _align(texts: Sequence[str], *, right: bool) -> list[str]:
    if all(map(str.isascii, texts)):
        width = max(map(len, texts))
        return [text.rjust(width) if right else text.ljust(width) for text in texts]
    lengths = list(map(cell_len, texts))
    width = max(lengths)
    gaps = [" " * (width - length) for length in lengths]
    return [gap + text if right else text + gap for gap, text in zip(gaps, texts, strict=True)]


def _highlight(cells: Sequence[str], row: Sequence[object]) -> str:
    return SEPARATOR.join(
        click.style(cell, bold=True, fg="red") if isinstance(value, Text) and value.style == PROBLEM else cell
        for cell, value in zip(cells, row, strict=True)
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, Text):
        return value.plain.isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(_words(value))


def _words(value: object) -> str:
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(_words, value)) or NO_VALUE
    return escape_controls(str(value)).replace("\n", "\\n")
