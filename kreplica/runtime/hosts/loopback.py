"""Which host is at which loopback port, and which hosts cannot hear each other.

All hosts of a cluster share one address, so a connection's ends are known by their ports: those that hosts listen on,
and those that their own connections leave from.  Whoever is at neither is a client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

CLIENTS = "clients"
"""The name of everybody who is not a host of the cluster."""


class Loopback:
    """Shared by the hosts of one cluster."""

    def __init__(self) -> None:
        self._listening: dict[int, str] = {}
        self._leaving: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._peers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._cut: dict[frozenset[str], None] = {}
        self._isolated: dict[str, None] = {}
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back after each cut and each heal."""
        self._on_change.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Call that back no more."""
        self._on_change.remove(callback)

    # --- who is where ---

    def listens(self, port: int, host: str) -> None:
        """A host is found at that port, also after its end: nobody else gets the port."""
        self._listening[port] = host

    def leaves(self, port: int, client: Any) -> None:
        """A host's connection has that port of its own, for as long as its transport has a socket."""
        self._leaving[port] = client

    def host_at(self, port: int) -> str:
        """Who listens there; ``CLIENTS`` where none of the hosts does."""
        return self._listening.get(port, CLIENTS)

    def peer_of(self, descriptor: Any) -> str | None:
        """Who is at the other end of a transport; None for a port, which has no other end.

        What was found once stays: the other end may be gone while this one, cut off, cannot have heard of it.
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
        client: Any = self._leaving.get(origin[1])
        is_open = client is not None and hasattr(client, "socket") and client.socket.fileno() >= 0
        return str(client.reactor.name) if is_open else CLIENTS

    # --- what is cut ---

    def cut(self, some: Collection[str], others: Iterable[str]) -> None:
        """Let nothing pass between any of the one and any of the other."""
        for a, b in product(some, others):
            if a != b:
                self._cut[frozenset((a, b))] = None
        self._changed()

    def isolate(self, host: str) -> None:
        """Let nothing pass between a host and anybody else."""
        self._isolated[host] = None
        self._changed()

    def mend(self, host: str) -> None:
        """Undo ``isolate`` of one host: what was sent meanwhile arrives, but for what another's isolation holds."""
        self._isolated.pop(host, None)
        self._changed()

    def heal(self) -> None:
        """Undo all of it: what was sent meanwhile arrives."""
        self._cut.clear()
        self._isolated.clear()
        self._changed()

    @property
    def is_whole(self) -> bool:
        """Whether nothing at all is cut."""
        return not self._cut and not self._isolated

    def is_isolated(self, host: str) -> bool:
        """Whether a host was cut off from everybody."""
        return host in self._isolated

    def is_cut(self, a: str, b: str | None) -> bool:
        """Whether nothing passes between the two; None is nobody, from whom nothing can be cut."""
        if b is None or a == b:
            return False
        return a in self._isolated or b in self._isolated or frozenset((a, b)) in self._cut

    def _changed(self) -> None:
        for callback in list(self._on_change):
            callback()
