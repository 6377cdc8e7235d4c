"""How long clients wait between tries."""

from __future__ import annotations

from random import Random

JITTER_MIN = 0.5
"""Of a wait, this much is certain; the rest is drawn, so that clients that failed together do not return together."""


def backoff_s(random: Random, attempt: int, first_s: float, max_s: float) -> float:
    """How long to wait after so many attempts that failed: twice as long each time, up to a bound, with jitter.

    :param attempt: 1 after the first.
    :param first_s: 0: not at all.
    """
    if first_s <= 0:
        return 0.0
    whole = min(first_s * 2.0 ** min(attempt - 1, 30), max_s)
    return whole * random.uniform(JITTER_MIN, 1.0)
