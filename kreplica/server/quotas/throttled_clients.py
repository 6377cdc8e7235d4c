"""Recently throttled clients, for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

THROTTLED_MAX = 1000
"""Number of throttled clients that are remembered; the one that was throttled least recently is forgotten."""

REMEMBERED_S = 3600.0
"""Time for which a throttled client is remembered."""


class ThrottledKey(NamedTuple):
    """A client and the quota that it exceeded.

    :ivar user: principal, such as ``User:alice``; empty for a quota of IP addresses, whose users are unknown.
    """

    quota: str
    user: str
    client_id: str
    address: str


class ThrottledClient:
    """How often and for how long a client was throttled.

    :ivar count: throttled requests, or connections for a quota of an IP address.
    :ivar total_s: sum of the throttle times.
    :ivar last_s: reactor time at which the client was throttled last.
    :ivar until_s: reactor time at which the last throttle time ends.
    """

    __slots__ = ("count", "key", "last_s", "total_s", "until_s")

    def __init__(self, key: ThrottledKey) -> None:
        self.key = key
        self.count = 0
        self.total_s = 0.0
        self.last_s = 0.0
        self.until_s = 0.0


class ThrottledClients:
    """The most recently throttled clients; bounded.

    :param seconds: clock of the reactor.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clients: dict[ThrottledKey, ThrottledClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ThrottledClient]:
        """Iterate over the remembered clients, the most recently throttled first."""
        oldest_s = self._seconds() - REMEMBERED_S
        for client in reversed(list(self._clients.values())):
            if client.last_s >= oldest_s:
                yield client

    def add(self, key: ThrottledKey, throttle_s: float) -> None:
        """Remember that a client was throttled."""
        now_s = self._seconds()
        client = self._clients.pop(key, None) or ThrottledClient(key)
        self._clients[key] = client
        client.count += 1
        client.total_s += throttle_s
        client.last_s = now_s
        client.until_s = max(client.until_s, now_s + throttle_s)
        if len(self._clients) > THROTTLED_MAX:
            del self._clients[next(iter(self._clients))]

    def count_now(self, quota: str) -> int:
        """Return the number of clients whose throttle time has not ended."""
        now_s = self._seconds()
        return sum(client.key.quota == quota and client.until_s > now_s for client in self._clients.values())
