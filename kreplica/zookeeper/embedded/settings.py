"""Settings of an embedded ZooKeeper server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.records import FRAME_SIZE_MAX


class AnonymousClients(Enum):
    """Clients that may send requests without proving an identity (with SASL or a TLS certificate).

    * ``NONE``: no client.
    * ``LOCAL``: clients that connect from a loopback address.
    * ``ALL``: every client.
    """

    NONE = "none"
    LOCAL = "local"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ZooKeeperServerSettings:
    """Settings of one embedded ZooKeeper server.

    :param tick_time_ms: session timeouts are clamped to 2 to 20 ticks.
    :param connections_max: maximum number of connections; further ones are closed immediately.
    :param address_connections_max: maximum number of connections of one client address (ZooKeeper's
        ``maxClientCnxns``); further ones are closed immediately.
    :param frame_size_max: maximum request size in bytes (ZooKeeper's ``jute.maxbuffer``).
    :param expendable_check_ms: interval between checks for empty containers and znodes whose time to live has passed.
    :param sessions_max: maximum number of sessions.  At the maximum, a new session ends the longest silent tenth of the
        sessions without a connection and ephemeral znodes; if there are no such sessions, the new one is rejected.
    :param quota: limits of znodes and their data.
    :param users: password by user of SASL DIGEST-MD5.
    """

    tick_time_ms: int = 2_000
    connections_max: int = 2_000
    address_connections_max: int = 1_000
    frame_size_max: int = FRAME_SIZE_MAX
    expendable_check_ms: int = 60_000
    sessions_max: int = 20_000
    quota: QuotaBounds = field(default_factory=QuotaBounds)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    anonymous: AnonymousClients = AnonymousClients.ALL
