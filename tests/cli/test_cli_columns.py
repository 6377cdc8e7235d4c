"""Columns of ``kreplica consume``."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.cli.records.record_columns import Columns

HEADERS = [{"key": "source", "value": "web", "encoding": "utf8"}, {"key": "a.b", "value": None, "encoding": None}]
MESSAGE: dict[str, Any] = {
    "topic": "orders",
    "partition": 1,
    "offset": 7,
    "timestamp_ms": None,
    "timestamp_type": "create_time",
    "key": {"value": "tab\there\nline\\"},
    "value": {"value": {"total": 2**60, "items": [{"name": "tea"}], "none": None, "flag": True}},
    "headers": HEADERS,
    "size_bytes": 99,
}


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("topic, partition,offset,size", "orders\t1\t7\t99"),
        ("time,timestamp_ms,timestamp_type", "\tnull\tcreate_time"),
        ("key", "tab\\there\\nline\\\\"),
        ("value.total,value.items.0.name,value.flag", f"{2**60}\ttea\ttrue"),
        ("value.items,value.none,value.items.9,value.total.x", '[{"name":"tea"}]\t\t\t'),
        ("headers", "source=web,a.b=null"),
        ("headers.source,headers.a.b,headers.x", "web\tnull\t"),
    ],
)
def test_line(columns: str, line: str) -> None:
    """Columns can be members of objects and arrays; tabs and line ends in values are escaped."""
    assert Columns(columns).line(MESSAGE) == line


@pytest.mark.parametrize("columns", ["", " , ", "nothing", "offset.x", "value,time.x"])
def test_unknown_columns(columns: str) -> None:
    with pytest.raises(ValueError, match="column"):
        Columns(columns)
