"""What classic groups are told of the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassicConfig:
    """The defaults are Kafka's.

    :param initial_rebalance_delay_ms: how long an empty group waits for more members (KIP-134).
    :param size_max: members that one group may have (KIP-389).
    """

    initial_rebalance_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    size_max: int = 2**31 - 1
