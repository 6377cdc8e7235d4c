"""Measures the phases of a broker's start for one log line."""

from __future__ import annotations

from collections.abc import Callable


class StartTimings:
    """Parts that follow one another.

    :param now_s: a clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._parts: list[tuple[str, float]] = []

    def done(self, part: str) -> None:
        """Record the end of a phase, which started at the end of the previous one."""
        now_s = self._now_s()
        self._parts.append((part, now_s - self._since_s))
        self._since_s = now_s

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return sum(seconds for _, seconds in self._parts)

    def __str__(self) -> str:
        return ", ".join(f"{part} {seconds:.2f}" for part, seconds in self._parts)
