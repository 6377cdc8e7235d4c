"""Parsing of option values; every error names the option."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DURATION = re.compile(r"(\d{1,12})\s*(us|ms|s|m|min|h|d)?", re.ASCII)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
INT64_END = 1 << 63


def number(text: str | None, option: str, lowest: int) -> int | None:
    """Return an integer, or None if the option is not set.

    :raise ValueError: the text is not an integer, or is less than ``lowest``.
    """
    if text is None:
        return None
    stripped = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,19}", stripped, re.ASCII) or not lowest <= int(stripped) < INT64_END:
        raise ValueError(f"option {option!r}: {text!r}: expected an integer of at least {lowest}")
    return int(stripped)


def boolean(text: str | None, option: str, *, default: bool) -> bool:
    """Parse ``true`` or ``false``.

    :raise ValueError: the text is neither.
    """
    return choice(text, option, ("true", "false"), "true" if default else "false") == "true"


def choice(text: str | None, option: str, words: Sequence[str], default: str) -> str:
    """Return the allowed word that the text matches, ignoring case.

    :raise ValueError: the text is not an allowed word.
    """
    if text is None:
        return default
    word = text.strip().lower()
    if word not in words:
        raise ValueError(f"option {option!r}: {text!r}: expected {' or '.join(words)}")
    return word


def duration_s(text: str | None, option: str, default: float) -> float:
    """Parse a duration in Spark's notation, such as ``15m``; a plain number is in milliseconds.

    :return: seconds.
    :raise ValueError: the text is not a duration.
    """
    if text is None:
        return default
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"option {option!r}: {text!r}: expected a duration, such as 15m or 500ms")
    return int(match[1]) * _SECONDS[match[2] or "ms"]
