"""Output of ``consume`` as columns separated by tabs."""

from __future__ import annotations

import json
from typing import Any

from kreplica.cli.terminal.screen import iso_time_text

Document = dict[str, Any]

COLUMNS = ("topic", "partition", "offset", "time", "timestamp_ms", "timestamp_type", "key", "value", "headers", "size")


class Columns:
    """Columns such as ``offset,time,key,value.customer.name,headers.source``.

    :raise ValueError: a column is unknown.
    """

    def __init__(self, text: str) -> None:
        self.names = [name.strip() for name in text.split(",") if name.strip()]
        self._paths = [name.split(".") for name in self.names]
        for path in self._paths:
            if path[0] not in COLUMNS or (len(path) > 1 and path[0] not in ("key", "value", "headers")):
                raise ValueError(f"unknown column {'.'.join(path)}; the columns are {', '.join(COLUMNS)}, and fields "
                                 "such as value.total")  # fmt: skip
        if not self.names:
            raise ValueError("specify at least one column")

    def header(self) -> str:
        """Return the header line."""
        return "\t".join(self.names)

    def line(self, document: Document) -> str:
        """Return the values of a message; a missing field is empty."""
        return "\t".join(_cell(document, path) for path in self._paths)


def _cell(document: Document, path: list[str]) -> str:
    name, *members = path
    if name == "time":
        return _time(document["timestamp_ms"])
    if name == "size":
        return str(document["size_bytes"])
    if name == "headers":
        return _headers(document["headers"], members)
    value = document[name]
    if name in ("key", "value"):
        value = value["value"]
        for member in members:
            value = _member(value, member)
            if value is None:
                return ""
    return _text(value)


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list) and name.isdigit() and int(name) < len(value):
        return value[int(name)]
    return None


def _headers(rows: list[Document], members: list[str]) -> str:
    if members:
        name = ".".join(members)
        return ",".join(_text(row["value"]) for row in rows if row["key"] == name)
    return ",".join(f"{_text(row['key'])}={_text(row['value'])}" for row in rows)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _time(timestamp_ms: int | None) -> str:
    return "" if timestamp_ms is None else iso_time_text(timestamp_ms)
