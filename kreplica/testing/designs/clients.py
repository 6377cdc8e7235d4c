"""ZooKeeper clients: with callbacks for the agents of the first two designs, with Deferreds for the third.

``AgentClient`` sends up to ``in_flight_max`` requests before it waits; 1 makes it the synchronous client that the
first designs assume.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.testing.designs.light_zookeeper import Done, LightZooKeeper, Session, Watch
from kreplica.testing.simulator.scheduler import Process
from kreplica.zookeeper import (
    Create,
    Created,
    Delete,
    NoNode,
    Operation,
    OperationResult,
    Read,
    ReadResult,
    SessionState,
    SetData,
    Stat,
    ZooKeeperError,
)
from kreplica.zookeeper.embedded.znode import Znode

ONE_BY_ONE, PIPELINED = 1, 1000
"""Maximum number of requests in flight, for a synchronous and for a pipelined agent."""


class AgentClient:
    """Requests with callbacks, in order.

    Callbacks of reads are passed None for a missing znode.
    """

    def __init__(self, zookeeper: LightZooKeeper, process: Process, in_flight_max: int) -> None:
        self.session = zookeeper.open_session(process)
        self._zookeeper = zookeeper
        self._in_flight = 0
        self._in_flight_max = in_flight_max
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...], Done]] = deque()
        self._closed = False

    def exists(self, path: str, watch: Watch | None, done: Callable[[Znode | None], None]) -> None:
        self._send(self._zookeeper.exists, (path, watch), done)

    def get(self, path: str, watch: Watch | None, done: Callable[[tuple[bytes, int] | None], None]) -> None:
        self._send(self._zookeeper.get, (path, watch), done)

    def children(self, path: str, watch: Watch | None, done: Callable[[list[str] | None], None]) -> None:
        self._send(self._zookeeper.children, (path, watch), done)

    def write(self, operation: Operation, done: Done | None = None) -> None:
        """Send a write; the result or the ``ZooKeeperError`` is passed to ``done``."""
        self._send(self._zookeeper.write, (operation,), done or _ignore)

    def create(self, path: str, data: bytes, done: Done | None = None, *, ephemeral: bool = False) -> None:
        self.write(Create(path, data, ephemeral=ephemeral), done)

    def set(self, path: str, data: bytes, done: Done | None = None) -> None:
        self.write(SetData(path, data), done)

    def delete(self, path: str, done: Done | None = None) -> None:
        self.write(Delete(path), done)

    def close(self) -> None:
        """End the session now; unsent requests are dropped and no callback runs."""
        self._closed = True
        self._waiting.clear()
        self._zookeeper.close_session(self.session)

    def _send(self, request: Callable[..., None], arguments: tuple[Any, ...], done: Done) -> None:
        if self._closed:
            return
        if self._in_flight >= self._in_flight_max:
            self._waiting.append((request, arguments, done))
            return
        self._in_flight += 1
        request(self.session, *arguments, lambda result: self._done(done, result))

    def _done(self, done: Done, result: Any) -> None:
        if self._closed:
            return
        self._in_flight -= 1
        done(result)
        while self._waiting and self._in_flight < self._in_flight_max:
            self._send(*self._waiting.popleft())


def failed(result: object) -> bool:
    """Return True if a write failed."""
    return isinstance(result, ZooKeeperError)


def _ignore(_: object) -> None:
    return


class DeferredClient:
    """Subset of ``ZooKeeperClient`` that a controller and ``write_units`` need, for the light server.

    :param one_by_one: True to charge a round trip for every write and read of a multi.
    """

    def __init__(self, zookeeper: LightZooKeeper, process: Process, *, one_by_one: bool = False) -> None:
        self._zookeeper = zookeeper
        self._session: Session = zookeeper.open_session(process, one_by_one=one_by_one)
        self._listeners: list[Callable[[SessionState], None]] = []

    @property
    def session_id(self) -> int:
        return self._session.id

    def on_session_event(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def end(self) -> None:
        """Let the session expire without notifying the client yet."""
        self._zookeeper.close_session(self._session)

    def replace_session(self) -> None:
        """Notify the listeners of the expiry and open the next session."""
        before = self._session
        self._session = self._zookeeper.open_session(before.process, one_by_one=before.one_by_one)
        for listener in list(self._listeners):
            listener(SessionState.EXPIRED)
        for listener in list(self._listeners):
            listener(SessionState.CONNECTED)

    def close(self) -> None:
        """End the session; ephemeral znodes are deleted."""
        self._zookeeper.close_session(self._session)

    def exists(self, path: str, watch: Watch | None = None) -> Deferred[Stat | None]:
        deferred: Deferred[Stat | None] = Deferred()
        stat = _stat(self._zookeeper.tree.nodes.get(path))
        self._zookeeper.exists(self._session, path, watch, lambda _: deferred.callback(stat))
        return deferred

    def get_data(self, path: str, watch: Watch | None = None) -> Deferred[tuple[bytes, Stat]]:
        deferred: Deferred[tuple[bytes, Stat]] = Deferred()
        stat = _stat(self._zookeeper.tree.nodes.get(path))

        def done(response: tuple[bytes, int] | None) -> None:
            if response is None or stat is None:
                deferred.errback(NoNode(path))
            else:
                deferred.callback((response[0], stat))

        self._zookeeper.get(self._session, path, watch, done)
        return deferred

    def get_children(self, path: str, watch: Watch | None = None) -> Deferred[list[str]]:
        deferred: Deferred[list[str]] = Deferred()
        self._zookeeper.children(
            self._session, path, watch, lambda names: _complete(deferred, NoNode(path) if names is None else names)
        )
        return deferred

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Deferred[Created]:
        return self._write(Create(path, data, ephemeral=ephemeral, sequence=sequence))

    def delete(self, path: str, version: int = -1) -> Deferred[None]:
        return self._write(Delete(path, version))

    def set_data(self, path: str, data: bytes, version: int = -1) -> Deferred[Stat]:
        return self._write(SetData(path, data, version))

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        deferred: Deferred[list[OperationResult]] = Deferred()
        self._zookeeper.multi(self._session, operations, lambda result: _complete(deferred, result))
        return deferred

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        deferred: Deferred[list[ReadResult]] = Deferred()
        self._zookeeper.multi_read(self._session, reads, deferred.callback)
        return deferred

    def _write(self, operation: Operation) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self._zookeeper.write(self._session, operation, lambda result: _complete(deferred, result))
        return deferred


def _stat(node: Znode | None) -> Stat | None:
    return None if node is None else node.stat()


def _complete(deferred: Deferred[Any], result: Any) -> None:
    if deferred.called:
        return
    if isinstance(result, Exception):
        deferred.errback(result)
    else:
        deferred.callback(result)
