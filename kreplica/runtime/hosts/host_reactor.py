"""Reactor of one of several hosts in a process, on top of the real reactor; it can be paused, isolated and killed.

Sockets, timers and transports are real. While a host is paused, its timers are delayed and the real reactor does not
watch its sockets; while a connection is partitioned, its socket is not watched either. The kernel still accepts
connections and buffers bytes, as for a stopped process or during packet loss, and all of it arrives later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any
from weakref import WeakSet

from twisted.internet import tcp
from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFDSet, IReactorFromThreads, IReactorTCP, IReactorTime
from twisted.python import log
from zope.interface import implementer

from kreplica.runtime.hosts.loopback import Loopback

NEVER_S = 1e9
"""Delay of the timers of a paused host."""


class HostState(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@implementer(IReactorTime, IReactorTCP, IReactorFDSet, IReactorFromThreads)
class HostReactor:
    """Reactor of one program on one host.

    :param reactor: the real reactor with a monotonic clock (``kreplica.runtime.use_monotonic_clock``).
    :param name: name of the host on the loopback and in the log.
    """

    def __init__(self, reactor: Any, name: str, loopback: Loopback) -> None:
        self.name = name
        self.state = HostState.RUNNING
        self._reactor = reactor
        self._loopback = loopback
        self._readers: dict[Any, None] = {}
        self._writers: dict[Any, None] = {}
        self._transports: WeakSet[Any] = WeakSet()
        self._delayed_clients: dict[HostClient, None] = {}
        self._paused_at_s = 0.0
        self._delayed_calls: list[tuple[DelayedCall, float]] = []
        self._from_threads: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self._context = {"system": name}
        loopback.on_change(self.update_watched)

    # --- faults ---

    def pause(self) -> None:
        """Pause, as SIGSTOP does: no timer fires, and nothing is read or written."""
        if self.state is not HostState.RUNNING:
            return
        self.state = HostState.PAUSED
        now_s = self.seconds()
        self._delayed_calls = [(call, call.getTime() - now_s) for call in self.getDelayedCalls()]
        for call, _ in self._delayed_calls:
            call.reset(NEVER_S)
        self._paused_at_s = now_s
        self.update_watched()

    def resume(self) -> None:
        """Resume; overdue timers fire now, in their order."""
        if self.state is not HostState.PAUSED:
            return
        self.state = HostState.RUNNING
        paused_s = self.seconds() - self._paused_at_s
        delayed_calls, self._delayed_calls = self._delayed_calls, []
        for call, left_s in sorted(delayed_calls, key=lambda each: each[1]):
            if call.active():
                call.reset(max(left_s - paused_s, 0.0))
        waiting, self._from_threads = self._from_threads, []
        for function, args, kwargs in waiting:
            self.callFromThread(function, *args, **kwargs)
        self.update_watched()

    def kill(self) -> None:
        """Kill the host, as SIGKILL does: cancel all timers and close all sockets without callbacks."""
        if self.state is HostState.DEAD:
            return
        for call in self.getDelayedCalls():
            call.cancel()
        self.state = HostState.DEAD
        self.removeAll()
        for transport in [*self._transports, *self._delayed_clients]:
            if hasattr(transport, "socket"):
                transport.socket.close()
        self._delayed_clients.clear()
        self._delayed_calls.clear()
        self._from_threads.clear()
        self._loopback.forget(self.update_watched)

    # --- IReactorTime, IReactorFromThreads ---

    def seconds(self) -> float:
        seconds: float = self._reactor.seconds()
        return seconds

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> DelayedCall:
        if self.state is HostState.DEAD:
            return DelayedCall(self.seconds() + delay, callable, args, kwargs, _ignore, _ignore, self.seconds)
        call: DelayedCall = self._reactor.callLater(delay, self._call, callable, args, kwargs)
        if self.state is HostState.PAUSED:
            self._delayed_calls.append((call, self.seconds() + delay - self._paused_at_s))
            call.reset(NEVER_S)
        return call

    def _call(self, callable: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        log.callWithContext(self._context, callable, *args, **kwargs)

    def getDelayedCalls(self) -> list[DelayedCall]:
        # Bound methods of the same object are equal, not identical.
        return [call for call in self._reactor.getDelayedCalls() if call.func == self._call]

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        self._reactor.callFromThread(self._call_from_thread, callable, args, kwargs)

    def _call_from_thread(self, callable: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.state is HostState.PAUSED:
            self._from_threads.append((callable, args, kwargs))
        elif self.state is HostState.RUNNING:
            self._call(callable, args, kwargs)

    def resolve(self, name: str, timeout: Any = ()) -> Deferred[str]:
        address: Deferred[str] = self._reactor.resolve(name)
        return address

    @property
    def nameResolver(self) -> Any:
        return self._reactor.nameResolver

    # --- IReactorTCP ---

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> tcp.Port:
        listening = HostPort(port, factory, backlog, interface, self)
        listening.startListening()
        self._loopback.add_listener(listening.socket.getsockname()[1], self.name)
        return listening

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: tuple[str, int] | None = None
    ) -> tcp.Connector:
        connector = HostConnector(host, port, factory, timeout, bindAddress, self)
        connector.connect()
        return connector

    # --- IReactorFDSet ---

    def addReader(self, reader: Any) -> None:
        if reader not in self._readers and self.state is not HostState.DEAD:
            self._readers[reader] = None
            self._register(reader)
            if not self._is_blocked(reader):
                self._reactor.addReader(reader)

    def addWriter(self, writer: Any) -> None:
        if writer not in self._writers and self.state is not HostState.DEAD:
            self._writers[writer] = None
            self._register(writer)
            if not self._is_blocked(writer):
                self._reactor.addWriter(writer)

    def _register(self, transport: Any) -> None:
        if transport not in self._transports:
            self._transports.add(transport)
            self._loopback.peer_of(transport)  # caches the peer, which may have exited when it is needed
            if isinstance(transport, tcp.Server):
                transport.logstr = self.name

    def removeReader(self, reader: Any) -> None:
        self._delayed_clients.pop(reader, None)
        if reader in self._readers:
            del self._readers[reader]
            self._reactor.removeReader(reader)

    def removeWriter(self, writer: Any) -> None:
        if writer in self._writers:
            del self._writers[writer]
            self._reactor.removeWriter(writer)

    def getReaders(self) -> list[Any]:
        return list(self._readers)

    def getWriters(self) -> list[Any]:
        return list(self._writers)

    def removeAll(self) -> list[Any]:
        removed = list({**self._readers, **self._writers})
        for descriptor in removed:
            self.removeReader(descriptor)
            self.removeWriter(descriptor)
        return removed

    # --- sockets that are not watched ---

    def update_watched(self) -> None:
        """Update the sockets that the real reactor watches, and retry delayed connection attempts."""
        for reader in list(self._readers):
            (self._reactor.removeReader if self._is_blocked(reader) else self._reactor.addReader)(reader)
        for writer in list(self._writers):
            (self._reactor.removeWriter if self._is_blocked(writer) else self._reactor.addWriter)(writer)
        for client in list(self._delayed_clients):
            if not self.reaches(client.realAddress):
                continue
            del self._delayed_clients[client]
            self.callLater(0, client.doConnect)

    def _is_blocked(self, descriptor: Any) -> bool:
        if self.state is not HostState.RUNNING:
            return True
        loopback = self._loopback
        return not loopback.has_no_partitions and loopback.is_cut(self.name, loopback.peer_of(descriptor))

    def reaches(self, address: tuple[str, int]) -> bool:
        """Return True if no partition blocks traffic to an address."""
        return not self._loopback.is_cut(self.name, self._loopback.host_at(address[1]))

    def connect_when_healed(self, client: HostClient) -> None:
        """Delay a connection attempt until the partition is healed; the attempt may time out first."""
        self._delayed_clients[client] = None

    def register_local_port(self, client: HostClient) -> None:
        """Register the local port of an outgoing connection, so that its peer can identify this host."""
        self._loopback.add_outgoing(client.socket.getsockname()[1], client)


class HostPort(tcp.Port):
    """Twisted's port, with the name of the host in its log lines."""

    def logPrefix(self) -> str:
        name: str = self.reactor.name  # type: ignore[attr-defined]
        return name


class HostClient(tcp.Client):
    """Twisted's client connection, which hangs while its destination is partitioned."""

    reactor: HostReactor
    realAddress: tuple[str, int]

    def doConnect(self) -> None:
        if not self.reactor.reaches(self.realAddress):
            self.reactor.connect_when_healed(self)
            return
        super().doConnect()  # type: ignore[no-untyped-call]
        if hasattr(self, "socket") and self.socket.fileno() >= 0:
            self.reactor.register_local_port(self)

    def logPrefix(self) -> str:
        return self.reactor.name


class HostConnector(tcp.Connector):
    """Twisted's connector for ``HostClient``."""

    reactor: Any

    def _makeTransport(self) -> tcp.Client:
        return HostClient(self.host, self.port, self.bindAddress, self, self.reactor)  # type: ignore[no-untyped-call]


def _ignore(call: DelayedCall) -> None:
    """Ignore changes of the timers of a dead host."""
