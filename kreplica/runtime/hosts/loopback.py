"""Loopback ports of the hosts of one cluster, and the partitions between the hosts.

All hosts share one address, so ports identify the ends of a connection: the ports on which hosts listen and the local
ports of their outgoing connections. Any other port belongs to a client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

CLIENTS = "clients"
"""Name of all peers that are not hosts of the cluster."""


class Loopback:
    """Ports and network partitions of the hosts of one cluster."""

    def __init__(self) -> None:
        self._listening: dict[int, str] = {}
        self._outgoing: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._peers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._cut: dict[frozenset[str], None] = {}
        self._isolated: dict[str, None] = {}
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Add a callback for changes of the partitions."""
        self._on_change.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback."""
        self._on_change.remove(callback)

    # --- addresses ---

    def add_listener(self, port: int, host: str) -> None:
        """Register a listening port of a host; it stays registered after the host has stopped."""
        self._listening[port] = host

    def add_outgoing(self, port: int, client: Any) -> None:
        """Register the local port of an outgoing connection while its transport has a socket."""
        self._outgoing[port] = client

    def host_at(self, port: int) -> str:
        """Return the host that listens on a port, or ``CLIENTS``."""
        return self._listening.get(port, CLIENTS)

    def peer_of(self, descriptor: Any) -> str | None:
        """Return the host or ``CLIENTS`` at the other end of a transport; None for a listening port.

        The result is cached: the peer may exit while a partition hides this from the transport.
        """
        peer = self._peers.get(descriptor)
        if peer is None:
            peer = self._find_peer(descriptor)
            if peer is not None:
                self._peers[descriptor] = peer
        return peer

    def _find_peer(self, descriptor: Any) -> str | None:
        destination = getattr(descriptor, "realAddress", None)
        if destination is not None:
            return self.host_at(destination[1])
        origin = getattr(descriptor, "client", None)
        if origin is None:
            return None
        client: Any = self._outgoing.get(origin[1])
        is_open = client is not None and hasattr(client, "socket") and client.socket.fileno() >= 0
        return str(client.reactor.name) if is_open else CLIENTS

    # --- partitions ---

    def cut(self, group: Collection[str], other_group: Iterable[str]) -> None:
        """Block all traffic between two groups of hosts."""
        for a, b in product(group, other_group):
            if a != b:
                self._cut[frozenset((a, b))] = None
        self._changed()

    def isolate(self, host: str) -> None:
        """Block all traffic of a host."""
        self._isolated[host] = None
        self._changed()

    def end_isolation(self, host: str) -> None:
        """End the isolation of a host; delayed bytes arrive unless another partition blocks them."""
        self._isolated.pop(host, None)
        self._changed()

    def heal(self) -> None:
        """Remove all partitions; delayed bytes arrive."""
        self._cut.clear()
        self._isolated.clear()
        self._changed()

    @property
    def has_no_partitions(self) -> bool:
        """True if there are no partitions."""
        return not self._cut and not self._isolated

    def is_isolated(self, host: str) -> bool:
        """Return True if a host is isolated."""
        return host in self._isolated

    def is_cut(self, a: str, b: str | None) -> bool:
        """Return True if traffic between two hosts is blocked; a listening port (None) is never blocked."""
        if b is None or a == b:
            return False
        return a in self._isolated or b in self._isolated or frozenset((a, b)) in self._cut

    def _changed(self) -> None:
        for callback in list(self._on_change):
            callback()
