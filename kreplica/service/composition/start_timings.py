"""Measures the phases of a broker's start, for a line in the log."""

from __future__ import annotations

from collections.abc import Callable


class StartTimings:
    """Durations of consecutive phases; ``str`` returns them in seconds, such as ``session 0.03, logs 0.05``.

    :param now_s: a clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._phases: list[tuple[str, float]] = []

    def done(self, phase: str) -> None:
        """Record the end of a phase, which started at the end of the previous one."""
        now_s = self._now_s()
        self._phases.append((phase, now_s - self._since_s))
        self._since_s = now_s

    @property
    def total_s(self) -> float:
        """Total seconds of all phases."""
        return sum(seconds for _, seconds in self._phases)

    def __str__(self) -> str:
        return ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in self._phases)
