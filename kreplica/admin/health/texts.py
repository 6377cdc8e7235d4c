"""Texts of faults and explanations: times, lists of brokers, sizes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime


def time_text(at_ms: int) -> str:
    """Format a time as ``2026-03-01 17:02:09 UTC``; as milliseconds if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms since 1970"


def duration_text(length_ms: int) -> str:
    """Return a length of time in whole minutes, hours or days, such as ``8 minutes``."""
    minutes = max(length_ms, 0) // 60_000
    if minutes < 2 * 60:
        number, unit = minutes, "minute"
    elif minutes < 2 * 1440:
        number, unit = minutes // 60, "hour"
    else:
        number, unit = minutes // 1440, "day"
    return f"{number:,} {unit}{'' if number == 1 else 's'}" if number else "less than a minute"


def brokers_text(brokers: Iterable[int]) -> str:
    """Return ``broker 3`` or ``brokers 1 and 3``, or ``no broker`` if there are none."""
    ids = [str(broker) for broker in brokers]
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(ids[:-1])} and {ids[-1]}" if ids else "no broker"


def bytes_text(size: int) -> str:
    """Return a size as ``1,234 bytes``."""
    return f"{size:,} bytes"
