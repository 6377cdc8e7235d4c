"""Time at which a client replaces its token, with Kafka's settings ``sasl.login.refresh.*`` (KIP-255)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRules:
    """The settings ``sasl.login.refresh.*``.

    :param window_factor: share of the lifetime after which the token is replaced.
    :param window_jitter: maximum random share of the lifetime that is added to it.
    :param min_period_s: minimum time before a token is replaced.
    :param buffer_s: minimum time between the replacement and the expiry of the token. This and ``min_period_s`` are
        ignored if the remaining lifetime is shorter than their sum.
    """

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def time_ms(self, now_ms: int, issued_ms: int | None, expires_ms: int, random: float) -> int:
        """Return the time at which the token should be replaced.

        :param now_ms: the time at which the token was received.
        :param random: a random number from 0 to 1.
        """
        share = self.window_factor + self.window_jitter * random
        if now_ms + (self.min_period_s + self.buffer_s) * 1000 > expires_ms:
            return now_ms + int((expires_ms - now_ms) * share)
        start_ms = now_ms if issued_ms is None else issued_ms
        wanted_ms = start_ms + int((expires_ms - start_ms) * share)
        latest_ms = expires_ms - self.buffer_s * 1000
        if wanted_ms > latest_ms:
            return latest_ms
        return max(wanted_ms, now_ms + self.min_period_s * 1000)
