"""Group commit: makes transactions durable in groups and delays responses that depend on them.

A transaction is applied to the tree immediately, in order of arrival, and added to the *gathering* group.  One group
at a time is *in flight*, that is, being written to the store; when it is durable, the gathering group follows.  A
response waits for the newest group that it depends on:

* the response to a change, and every watch event that it fires, waits for the change's group;
* a read of a znode that a group changed waits for that group; other reads do not wait;
* every response waits for the earlier responses on its connection.

Therefore no client observes state that a crash could undo, responses are sent in request order, and reads of unchanged
znodes do not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from kreplica.runtime import Reactor
from kreplica.zookeeper.embedded.sessions import Sessions
from kreplica.zookeeper.embedded.store import Changes, Store
from kreplica.zookeeper.embedded.tree import Tree


class Group:
    """Transactions that become durable together, and the responses that wait for them.

    :ivar zxid: ID of the last transaction.
    :ivar paths: paths of the changed znodes.
    :ivar session_ids: IDs of the changed sessions.
    :ivar responses: responses by connection, in the order in which they must be sent.
    """

    __slots__ = ("paths", "responses", "session_ids", "zxid")

    def __init__(self, zxid: int) -> None:
        self.zxid = zxid
        self.paths: set[str] = set()
        self.session_ids: set[int] = set()
        self.responses: dict[ResponseQueue, list[bytes]] = {}


class ResponseQueue(Protocol):
    """The sending side of a connection.

    :ivar sink: list for the next response: either sent immediately or held for a group.
    :ivar barrier: the group for which ``sink`` waits; the durable group if it does not wait.
    """

    sink: list[bytes]
    barrier: Group

    def release(self, responses: list[bytes], durable: Group | None) -> None:
        """Send responses whose group has become durable.

        :param durable: the new barrier if no response waits for a later group; otherwise None.
        """


class Commits(Protocol):
    """The part of ``GroupCommit`` that the request handlers use.

    :ivar zxid: ID of the last applied transaction.
    """

    zxid: int

    @property
    def durable(self) -> Group:
        """Group that represents all durable transactions."""

    def sink_for_change(self, connection: ResponseQueue) -> list[bytes]:
        """Return the sink of a response that depends on all transactions applied so far."""

    def sink_for_znode(self, connection: ResponseQueue, path: str) -> list[bytes]:
        """Return the sink of a response that depends on one znode, which may be absent."""

    def sink_for_tree(self, connection: ResponseQueue) -> list[bytes]:
        """Return the sink of a response that depends on the whole tree."""

    def transaction_applied(self) -> None:
        """Schedule the commit of a transaction that has no response, or none yet."""


class GroupCommit:
    """Numbers transactions and makes them durable in groups.

    :param on_failure: called once, when the store fails; no response is sent after that.
    :ivar zxid: ID of the last applied transaction.
    :ivar durable: group that represents all durable transactions; only its ``zxid`` is used.
    """

    def __init__(
        self,
        reactor: Reactor,
        tree: Tree,
        sessions: Sessions,
        store: Store,
        zxid: int,
        on_failure: Callable[[Failure], None],
    ) -> None:
        self._reactor = reactor
        self._tree = tree
        self._sessions = sessions
        self._store = store
        self._on_failure = on_failure
        self._scheduled = False
        self._failed = False
        self._idle: list[Deferred[None]] = []
        self.zxid = zxid
        self.durable = Group(zxid)
        self.in_flight: Group | None = None
        self.gathering = self._gather()

    def _gather(self) -> Group:
        group = Group(self.zxid)
        self._tree.changed = group.paths
        self._sessions.changed = group.session_ids
        return group

    # --- sinks of responses ---

    def sink_for_change(self, connection: ResponseQueue) -> list[bytes]:
        """Return the sink of a response that depends on all transactions applied so far."""
        gathering = self.gathering
        gathering.zxid = self.zxid
        if not self._scheduled:
            self._schedule()
        if connection.barrier is not gathering:
            _wait(connection, gathering)
        return connection.sink

    def sink_for_znode(self, connection: ResponseQueue, path: str) -> list[bytes]:
        """Return the sink of a response that depends on one znode, which may be absent."""
        if path in self.gathering.paths:
            return self.sink_for_change(connection)
        in_flight = self.in_flight
        if in_flight is not None and connection.barrier is self.durable and path in in_flight.paths:
            _wait(connection, in_flight)
        return connection.sink

    def sink_for_tree(self, connection: ResponseQueue) -> list[bytes]:
        """Return the sink of a response that depends on the whole tree."""
        if self.zxid > (self.in_flight or self.durable).zxid:
            return self.sink_for_change(connection)
        if self.in_flight is not None and connection.barrier is self.durable:
            _wait(connection, self.in_flight)
        return connection.sink

    # --- groups ---

    def transaction_applied(self) -> None:
        """Schedule the commit of a transaction that has no response, or none yet."""
        if not self._scheduled:
            self._schedule()

    def when_idle(self) -> Deferred[None]:
        """Return a Deferred that fires when all applied transactions are durable, or the store has failed."""
        idle: Deferred[None] = Deferred()
        if self._failed or (self.in_flight is None and self.zxid == self.durable.zxid):
            idle.callback(None)
        else:
            self._idle.append(idle)
        return idle

    def _schedule(self) -> None:
        # At the end of this reactor iteration, so that one group contains the requests of all connections.
        self._scheduled = True
        self._reactor.callLater(0, self._start)

    def _start(self) -> None:
        if not self._scheduled or self._failed or self.in_flight is not None:
            return  # if a group is in flight, _durable starts the next one
        self._scheduled = False
        group = self.in_flight = self.gathering
        group.zxid = self.zxid
        self.gathering = self._gather()
        durable = maybeDeferred(lambda: self._store.append(self._changes(group)))
        durable.addCallbacks(self._durable, self._fail).addErrback(self._fail)

    def _changes(self, group: Group) -> Changes:
        nodes, sessions = self._tree.nodes, self._sessions.by_id
        # Sorted for determinism (the order of a set of strings varies), and because adjacent keys share pages.
        paths, session_ids = sorted(group.paths), sorted(group.session_ids)
        return Changes(
            group.zxid,
            [nodes[path].row() for path in paths if path in nodes],
            [path for path in paths if path not in nodes],
            [sessions[each].row() for each in session_ids if each in sessions],
            [each for each in session_ids if each not in sessions],
        )

    def _durable(self, _: None) -> None:
        group, self.in_flight = self.in_flight, None
        assert group is not None
        durable = self.durable
        durable.zxid = group.zxid
        if self._scheduled:
            self._start()
        for connection, responses in group.responses.items():
            connection.release(responses, durable if connection.barrier is group else None)
        if self.in_flight is None:
            self._notify_idle()

    def _notify_idle(self) -> None:
        idle, self._idle = self._idle, []
        for each in idle:
            each.callback(None)

    def _fail(self, failure: Failure) -> None:
        if not self._failed:
            self._failed = True
            self._on_failure(failure)
            self._notify_idle()


def _wait(connection: ResponseQueue, group: Group) -> None:
    connection.barrier = group
    connection.sink = group.responses[connection] = []
