"""Settings of the embedded ZooKeeper server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.records import FRAME_SIZE_MAX


class AnonymousClients(Enum):
    """Clients that may send requests without authenticating (with SASL or a TLS certificate).

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

    :param tick_time_ms: session timeouts are clamped to between 2 and 20 ticks.
    :param connections_max: maximum number of connections; further ones are closed immediately.
    :param address_connections_max: maximum number of connections from one client address (ZooKeeper's
        ``maxClientCnxns``); further ones are closed immediately.
    :param frame_size_max: maximum request size in bytes (ZooKeeper's ``jute.maxbuffer``).
    :param expendable_check_ms: interval between checks for empty containers and znodes whose time to live has passed.
    :param sessions_max: maximum number of sessions.  Once it is reached, a new session replaces the longest-silent
        tenth of the sessions without connection and ephemeral znodes; if there are none, the new session is rejected.
    :param quota: limits on the number and size of znodes.
    :param users: passwords by SASL DIGEST-MD5 user name.
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
