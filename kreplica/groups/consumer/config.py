"""What groups of KIP-848 are told of the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.groups.consumer.assignors import ASSIGNORS, Assignor


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The defaults are Kafka's.

    :param enabled: whether ``group.coordinator.rebalance.protocols`` names this protocol.
    :param session_timeout_ms: a member that is not heard of for so long has died.
    :param heartbeat_interval_ms: how often members are told to send heartbeats.
    :param size_max: members that one group may have.
    :param assignors: those that may be asked for; the first is taken where members ask for none.
    """

    enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    size_max: int = 2**31 - 1
    assignors: tuple[Assignor, ...] = ASSIGNORS
