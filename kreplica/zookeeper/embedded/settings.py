"""Settings of an embedded coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.records import FRAME_SIZE_MAX


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings of one coordinator.

    :param tick_time_ms: session timeouts are clamped to 2 to 20 ticks.
    :param connections_max: further connections are closed at once.
    :param address_connections_max: maximum number of connections of one client address (ZooKeeper's
        ``maxClientCnxns``); further ones are closed at once.
    :param frame_size_max: maximum request size in bytes (ZooKeeper's ``jute.maxbuffer``).
    :param expendable_check_ms: interval between checks for empty containers and znodes whose time to live has passed.
    :param sessions_max: beyond it, a new session replaces the session that has been silent longest and has neither
        connection nor ephemeral znodes; without such a session the new one is rejected.
    :param quota: limits of znodes and their data.
    """

    tick_time_ms: int = 2_000
    connections_max: int = 2_000
    address_connections_max: int = 1_000
    frame_size_max: int = FRAME_SIZE_MAX
    expendable_check_ms: int = 60_000
    sessions_max: int = 20_000
    quota: QuotaBounds = field(default_factory=QuotaBounds)
