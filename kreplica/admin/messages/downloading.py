"""Records as a file that is sent page by page: NDJSON or CSV."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from kreplica.admin.http.json_stream import dumped
from kreplica.admin.messages.pages import PageRequest
from kreplica.admin.messages.reading import MessageReader
from kreplica.admin.messages.scanning import Document
from kreplica.errors import ErrorCode, KafkaError

PAGE_RECORDS_MAX = 500
ROWS_AT_ONCE = 50
NDJSON, CSV = "ndjson", "csv"
CONTENT_TYPES = {NDJSON: "application/x-ndjson", CSV: "text/csv; charset=utf-8"}

_COLUMNS = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


async def file_parts(reader: MessageReader, request: PageRequest, kind: str) -> AsyncIterator[bytes]:
    """Yield the parts of a file.

    :param request: its limit applies to the whole file.
    :raise KafkaError: a partition cannot be read, so the file would be incomplete.
    """
    encode: Callable[[Sequence[Document]], bytes] = _ndjson if kind == NDJSON else _csv
    yield b"" if kind == NDJSON else _row(_COLUMNS)
    remaining, after = request.limit, request.after
    while remaining > 0:
        page = await reader.page(replace(request, limit=min(remaining, PAGE_RECORDS_MAX), after=after))
        if page["problems"]:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, page["problems"][0])
        rows = page["messages"]
        for start in range(0, len(rows), ROWS_AT_ONCE):
            yield encode(rows[start : start + ROWS_AT_ONCE])
        remaining -= len(rows)
        after = page["next"]
        if after is None:
            return


def _ndjson(rows: Sequence[Document]) -> bytes:
    return b"".join(dumped(row) + b"\n" for row in rows)


def _csv(rows: Sequence[Document]) -> bytes:
    return b"".join(
        _row(
            (
                row["partition"],
                row["offset"],
                "" if row["timestamp_ms"] is None else row["timestamp_ms"],
                _text(row["key"]["value"]),
                _text(row["value"]["value"]),
                _text({header["key"]: header["value"] for header in row["headers"]}),
            )
        )
        for row in rows
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Spreadsheets would evaluate such a cell as a formula.
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _row(cells: Sequence[object]) -> bytes:
    # Imported here because most brokers send no file.
    import csv

    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode(errors="replace")
