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


def brokers_text(brokers: Iterable[int]) -> str:
    """Return ``broker 3`` or ``brokers 1 and 3``, or ``no broker`` if there are none."""
    ids = [str(broker) for broker in brokers]
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(ids[:-1])} and {ids[-1]}" if ids else "no broker"


def bytes_text(size: int) -> str:
    """Return a size as ``1,234 bytes``."""
    return f"{size:,} bytes"
