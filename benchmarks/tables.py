"""Rows as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any


def markdown(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one table for each sequence of rows with the same keys."""
    tables = [_table(list(keys), list(group)) for keys, group in groupby(rows, key=tuple)]
    return "\n\n".join(tables)


def _table(keys: list[str], rows: list[Mapping[str, Any]]) -> str:
    cells = [[text(row[key]) for key in keys] for row in rows]
    widths = [max(len(str(key)), *(len(line[column]) for line in cells)) for column, key in enumerate(keys)]
    numeric = [all(isinstance(row[key], int | float | None) for row in rows) for key in keys]
    head = _line(map(str, keys), widths, numeric)
    rule = (
        "|"
        + "|".join("-" * (width + 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True))
        + "|"
    )
    return "\n".join([head, rule, *(_line(line, widths, numeric) for line in cells)])


def _line(cells: Iterable[str], widths: list[int], numeric: list[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "| " + " | ".join(padded) + " |"


def text(value: Any) -> str:
    """Format a value: three significant digits, thousands separators; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value).replace("|", "\\|")
