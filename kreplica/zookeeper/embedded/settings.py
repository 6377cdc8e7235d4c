"""Settings of an embedded ZooKeeper server."""

from __future__ import annotations

from dataclasses import dataclass, field

from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.records import FRAME_SIZE_MAX


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings of one embedded ZooKeeper server.

    :param tick_time_ms: session timeouts are clamped to 2 to 20 ticks.
    :param connections_max: maximum number of connections; further ones are closed immediately.
    :param address_connections_max: maximum number of connections of one client address (ZooKeeper's
        ``maxClientCnxns``); further ones are closed immediately.
    :param frame_size_max: maximum request size in bytes (ZooKeeper's ``jute.maxbuffer``).
    :param expendable_check_ms: interval between checks for empty containers and znodes whose time to live has passed.
    :param sessions_max: maximum number of sessions.  At the maximum, a new session ends the longest silent tenth of the
        sessions without connection and ephemeral znodes; if there are no such sessions, the new one is rejected.
    :param quota: limits of znodes and their data.
    """

    tick_time_ms: int = 2_000
    connections_max: int = 2_000
    address_connections_max: int = 1_000
    frame_size_max: int = FRAME_SIZE_MAX
    expendable_check_ms: int = 60_000
    sessions_max: int = 20_000
    quota: QuotaBounds = field(default_factory=QuotaBounds)
