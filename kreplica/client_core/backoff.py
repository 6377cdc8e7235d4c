"""Exponential backoff with jitter between retries."""

from __future__ import annotations

from random import Random

JITTER_MIN = 0.5
"""Fraction of a delay that is fixed; the rest is random, so that clients that failed together do not retry together."""


def backoff_s(random: Random, attempt: int, first_s: float, max_s: float) -> float:
    """Return the delay after a failed attempt in seconds: exponential up to a limit, with jitter.

    :param attempt: number of failed attempts so far, at least 1.
    :param first_s: upper bound of the first delay; 0 disables delays.
    """
    if first_s <= 0:
        return 0.0
    longest_s = min(first_s * 2.0 ** min(attempt - 1, 30), max_s)
    return longest_s * random.uniform(JITTER_MIN, 1.0)
