"""Settings of classic groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassicConfig:
    """Settings of classic groups; the defaults are Kafka's.

    :param initial_rebalance_delay_ms: time for which an empty group waits for more members (KIP-134).
    :param size_max: maximum number of members per group (KIP-389).
    """

    initial_rebalance_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    size_max: int = 2**31 - 1
