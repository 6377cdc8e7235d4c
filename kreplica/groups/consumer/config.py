"""Settings of KIP-848 groups."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.groups.consumer.assignors import ASSIGNORS, Assignor


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Settings of KIP-848 groups; the defaults are Kafka's.

    :param enabled: True if ``group.coordinator.rebalance.protocols`` includes ``consumer``.
    :param session_timeout_ms: time after which a member that sends no heartbeat is removed.
    :param heartbeat_interval_ms: interval sent to members.
    :param size_max: maximum number of members per group.
    :param assignors: available assignors; the first is the default.
    """

    enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    size_max: int = 2**31 - 1
    assignors: tuple[Assignor, ...] = ASSIGNORS
