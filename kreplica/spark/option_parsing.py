"""Options' values, read from text; what is wrong is told with the option's name."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DURATION = re.compile(r"(\d{1,12})\s*(us|ms|s|m|min|h|d)?", re.ASCII)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
INT64_END = 1 << 63


def number(text: str | None, option: str, lowest: int) -> int | None:
    """A whole number, or None where nothing is given.

    :raise ValueError: it is none, or less than ``lowest``.
    """
    if text is None:
        return None
    stripped = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,19}", stripped, re.ASCII) or not lowest <= int(stripped) < INT64_END:
        raise ValueError(f"option {option!r}: {text!r}: a number from {lowest} on is expected")
    return int(stripped)


def boolean(text: str | None, option: str, *, default: bool) -> bool:
    """``true`` or ``false``.

    :raise ValueError: neither.
    """
    return choice(text, option, ("true", "false"), "true" if default else "false") == "true"


def choice(text: str | None, option: str, words: Sequence[str], default: str) -> str:
    """One of some words, in any case.

    :raise ValueError: none of them.
    """
    if text is None:
        return default
    word = text.strip().lower()
    if word not in words:
        raise ValueError(f"option {option!r}: {text!r}: {' or '.join(words)} is expected")
    return word


def duration_s(text: str | None, option: str, default: float) -> float:
    """A time as Spark writes it, ``15m``; a number alone is milliseconds.

    :return: seconds.
    :raise ValueError: it is none.
    """
    if text is None:
        return default
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"option {option!r}: {text!r}: a time is expected, as 15m or 500ms")
    return int(match[1]) * _SECONDS[match[2] or "ms"]
