"""Reactor of one simulated process: Twisted's own ports, clients and transports on simulated time and sockets.

Only the layer below a transport is simulated: the event queue (``scheduler``), readiness (``readiness``) and the
kernel's side of a connection (``sockets``). Buffering, producers, half-closing and the order of callbacks are
Twisted's own, and a listener's custom transport (``Port.transport``) works as well.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from twisted.internet import error
from twisted.internet.defer import Deferred, DeferredList, fail, maybeDeferred, succeed
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IReactorFDSet,
    IReactorFromThreads,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
)
from twisted.python import log
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.testing.simulator.network import Network
from kreplica.testing.simulator.readiness import WatchedDescriptor
from kreplica.testing.simulator.scheduler import Call, Process, ProcessState, Scheduler
from kreplica.testing.simulator.sockets import SimulatedSocket
from kreplica.testing.simulator.transports import NameResolver, SimulatedConnector, SimulatedPort

SHUTDOWN_PHASES = ("before", "during", "after")


@implementer(IReactorTime, IReactorTCP, IReactorFDSet, IReactorFromThreads, IReactorPluggableNameResolver)
class SimulatedReactor:
    """Reactor of one process; it runs until it is stopped or its process is killed.

    :param host: name of the host that owns its ports and connections.
    :param on_failure: called with each exception from a protocol, which (as on the real reactor) closes its connection.
    """

    running = True

    def __init__(
        self, scheduler: Scheduler, network: Network, process: Process, host: str, on_failure: Callable[[Failure], None]
    ) -> None:
        self.nameResolver: Any = NameResolver(network)
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._host = host
        self._on_failure = on_failure
        self._watched: dict[Any, WatchedDescriptor] = {}
        self._sockets: WeakValueDictionary[int, SimulatedSocket] = WeakValueDictionary()
        self._triggers: dict[int, tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {}
        self._trigger_count = 0

    # --- IReactorTime, IReactorFromThreads, and the part of IReactorCore that is used ---

    def seconds(self) -> float:
        return self._scheduler.now_s

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> Call:
        scheduler = self._scheduler
        assert delay >= 0, f"{delay} is not greater than or equal to 0 seconds"
        return scheduler.add(Call(scheduler, self._process, scheduler.now_s + delay, True, callable, args, kwargs))

    def getDelayedCalls(self) -> list[Call]:
        return [call for call in self._scheduler.pending(self._process) if call.timer]

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        scheduler = self._scheduler
        scheduler.add(Call(scheduler, self._process, scheduler.now_s, False, callable, args, kwargs))

    def callWhenRunning(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        self.callFromThread(callable, *args, **kwargs)

    def addSystemEventTrigger(
        self, phase: str, eventType: str, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> int:
        if eventType == "startup":
            self.callWhenRunning(callable, *args, **kwargs)
        self._trigger_count += 1
        if eventType == "shutdown":
            self._triggers[self._trigger_count] = (phase, callable, args, kwargs)
        return self._trigger_count

    def removeSystemEventTrigger(self, triggerID: int) -> None:
        self._triggers.pop(triggerID, None)

    def stop(self) -> None:
        """Run the shutdown triggers, phase by phase, and then end the process.

        :raise ReactorNotRunning: the reactor was already stopped.
        """
        if not self.running:
            raise error.ReactorNotRunning("Can't stop reactor that isn't running.")
        self.running = False
        triggers, self._triggers = list(self._triggers.values()), {}
        self._shut_down(list(SHUTDOWN_PHASES), triggers)

    def _shut_down(self, phases: list[str], triggers: list[Any]) -> None:
        if not phases:
            self.kill()
            return
        phase = phases.pop(0)
        current = [trigger[1:] for trigger in triggers if trigger[0] == phase]
        results = [maybeDeferred(call, *args, **kwargs) for call, args, kwargs in current]
        all_done = DeferredList(results, consumeErrors=True)
        all_done.addCallback(lambda _: self._shut_down(phases, triggers))

    def resolve(self, name: str, timeout: Any = ()) -> Deferred[str]:
        if self._network.has_host(name):
            return succeed(name)
        return fail(error.DNSLookupError(f"no simulated host has the name {name!r}"))

    def installNameResolver(self, resolver: Any) -> Any:
        previous, self.nameResolver = self.nameResolver, resolver
        return previous

    # --- IReactorTCP ---

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> SimulatedPort:
        listening = SimulatedPort(port, factory, backlog, interface, self)
        listening.startListening()
        return listening

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: tuple[str, int] | None = None
    ) -> SimulatedConnector:
        connector = SimulatedConnector(host, port, factory, timeout, bindAddress, self)
        connector.connect()
        return connector

    # --- IReactorFDSet -----------------------------------------------------------------------------------------------

    def addReader(self, reader: Any) -> None:
        watched = self._watch(reader)
        if watched is not None and not watched.reads:
            watched.reads = True
            watched.wake()

    def addWriter(self, writer: Any) -> None:
        watched = self._watch(writer)
        if watched is not None and not watched.writes:
            watched.writes = True
            watched.wake()

    def removeReader(self, reader: Any) -> None:
        watched = self._watched.get(reader)
        if watched is not None:
            watched.reads = False
            if not watched.writes:
                del self._watched[reader]

    def removeWriter(self, writer: Any) -> None:
        watched = self._watched.get(writer)
        if watched is not None:
            watched.writes = False
            if not watched.reads:
                del self._watched[writer]

    def getReaders(self) -> list[Any]:
        return [watched.descriptor for watched in self._watched.values() if watched.reads]

    def getWriters(self) -> list[Any]:
        return [watched.descriptor for watched in self._watched.values() if watched.writes]

    def removeAll(self) -> list[Any]:
        removed = list(self._watched)
        for watched in self._watched.values():
            watched.reads = watched.writes = False
        self._watched.clear()
        return removed

    def _watch(self, descriptor: Any) -> WatchedDescriptor | None:
        watched = self._watched.get(descriptor)
        if watched is None and self._process.state is not ProcessState.DEAD:
            connection = self._sockets.get(descriptor.fileno())
            if connection is not None:
                watched = WatchedDescriptor(
                    self._scheduler, self._process, descriptor, connection, self.disconnect, self.log_failure
                )
                self._watched[descriptor] = watched
        return watched

    def disconnect(self, descriptor: Any, reason: BaseException, is_read: bool) -> None:
        """Remove a descriptor whose connection ended in a read or write, and notify it."""
        self.removeReader(descriptor)
        failure = Failure(reason)
        if is_read and isinstance(reason, error.ConnectionDone) and IHalfCloseableDescriptor.providedBy(descriptor):
            descriptor.readConnectionLost(failure)
        else:
            self.removeWriter(descriptor)
            descriptor.connectionLost(failure)

    # --- for the simulation ---

    def log_failure(self) -> None:
        """Log the exception that is being handled and report it to the simulation."""
        failure = Failure()
        log.err(failure)
        self._on_failure(failure)

    def new_socket(self) -> SimulatedSocket:
        """Create a socket that belongs to this process.

        :raise OSError: the process has been killed.
        """
        if self._process.state is ProcessState.DEAD:
            raise OSError(errno.ESHUTDOWN, "the process was killed")
        created = self._network.socket(self._host)
        self.adopt(created)
        return created

    def adopt(self, connection: SimulatedSocket) -> None:
        """Make this process the owner of a socket; it is closed when the process ends."""
        self._sockets[connection.number] = connection

    def kill(self) -> None:
        """End the process: its timers never fire, its sockets close, its peers see lost connections."""
        self._end(SimulatedSocket.close)

    def power_off(self) -> None:
        """End the process as ``kill`` does, but send nothing to its peers."""
        self._end(SimulatedSocket.power_off)

    def _end(self, terminate: Callable[[SimulatedSocket], None]) -> None:
        self.running = False
        self._scheduler.kill(self._process)
        self.removeAll()
        for connection in list(self._sockets.values()):
            terminate(connection)
        self._sockets.clear()
