"""Entries of log files as lines of text."""

from __future__ import annotations

from typing import Any

from kreplica.cli.terminal.screen import escape_controls, time_text

TEXT_SIZE_MAX = 100


def entry_line(entry: dict[str, Any], *, full: bool) -> str:
    """Format an entry as one line.

    :param full: do not shorten keys and values.
    """
    kind = entry["entry"]
    if kind == "batch":
        return _batch(entry)
    if kind == "record":
        return _record(entry, full=full)
    return "  ".join(f"{name.removesuffix('_ms')} {_value(name, value)}" for name, value in entry.items()
                     if name != "entry")  # fmt: skip


def _value(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return time_text(value) or "none"
    if isinstance(value, list):
        return "[" + "; ".join(", ".join(f"{key} {item}" for key, item in each.items()) for each in value) + "]"
    return str(value)


def _batch(entry: dict[str, Any]) -> str:
    marks = [mark for mark in ("transactional", "control") if entry[f"is_{mark}"]]
    if entry["compression"] != "none":
        marks.append(entry["compression"])
    if entry["producer_id"] >= 0:
        sequence = f" sequence {entry['base_sequence']}-{entry['last_sequence']}" if entry["base_sequence"] >= 0 else ""
        marks.append(f"producer {entry['producer_id']} epoch {entry['producer_epoch']}{sequence}")
    if not entry["crc_valid"]:
        marks.append("WRONG CRC")
    parts = [
        f"position {entry['position']}",
        f"offsets {entry['base_offset']}-{entry['last_offset']}",
        f"records {entry['records']}",
        f"bytes {entry['size_bytes']}",
        f"epoch {entry['leader_epoch']}",
        f"{entry['timestamp_type']} time {time_text(entry['max_timestamp_ms']) or 'none'}",
        *marks,
    ]
    return "  ".join(parts)


def _record(entry: dict[str, Any], *, full: bool) -> str:
    begin = f"    offset {entry['offset']}  {time_text(entry['timestamp_ms']) or 'no time'}"
    if "marker" in entry:
        return f"{begin}  {entry['marker']} by coordinator epoch {entry['coordinator_epoch']}"
    headers = "".join(
        f"  {escape_controls(header['key'])}={_text(header['value'], header['encoding'], full=full)}"
        for header in entry["headers"]
    )
    key = _text(entry["key"], entry["key_encoding"], full=full)
    return f"{begin}  key {key}  value {_text(entry['value'], entry['value_encoding'], full=full)}{headers}"


def _text(text: str | None, encoding: str | None, *, full: bool) -> str:
    if text is None:
        return "null"
    shown = text if full or len(text) <= TEXT_SIZE_MAX else f"{text[:TEXT_SIZE_MAX]}... ({len(text)} characters)"
    return f"base64:{shown}" if encoding == "base64" else f'"{escape_controls(shown)}"'.replace("\n", "\\n")
