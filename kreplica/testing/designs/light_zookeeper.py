"""Simulated ZooKeeper server: the embedded server's tree of znodes, one-shot watches, sessions, and a time model.

Requests are method calls instead of bytes on connections, so that a run can make tens of millions of them.  A request
takes effect when it is sent; its response arrives after a round trip plus the time that the server needs for it and
all earlier requests.  As every session has the same round trip, this is the order in which a real server would apply
them.  Watch events arrive in order with the responses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kreplica.testing.designs import sizes
from kreplica.testing.designs.counts import Counts
from kreplica.testing.simulator.scheduler import Process, Scheduler
from kreplica.zookeeper import (
    Check,
    Create,
    Created,
    Delete,
    EventType,
    GetData,
    MultiFailed,
    NoNode,
    Operation,
    OperationResult,
    Read,
    ReadResult,
    WatchEvent,
    ZooKeeperError,
)
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.znode import ROOT, Znode, parent_of
from kreplica.zookeeper.records import OPEN_ACL, KeeperState

Watch = Callable[[WatchEvent], None]
Done = Callable[[Any], None]

SLOW_EACH = 100
WALL_CLOCK_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second of the server.

    The defaults are those of appendix A of the controller redesign (500,000 znodes, one client, five servers):
    asynchronous reads and writes, and multis of 1,000 writes.

    :param slow_s: additional time that every ``SLOW_EACH``-th request takes; later requests wait for it.
    """

    reads: float = 500_000 / 10.3046
    writes: float = 500_000 / 18.7606
    writes_in_multi: float = 500_000 / 3.773
    slow_s: float = 0.0


class Session:
    """One client's session.

    :param process: owner of the callbacks; they do not run after its death.
    :param one_by_one: True to charge a round trip for every operation of a multi, as if each was sent
        separately and synchronously.
    """

    __slots__ = ("free_s", "id", "one_by_one", "process")

    def __init__(self, session_id: int, process: Process, one_by_one: bool) -> None:
        self.id = session_id
        self.process = process
        self.one_by_one = one_by_one
        self.free_s = 0.0


WatchTable: TypeAlias = dict[str, dict[Session, list[Watch]]]
"""Watch callbacks by path and session."""


class LightZooKeeper:
    """The server; the module describes its time model.

    :ivar watch_count: number of watches that are set.
    :ivar last_s: time of the last response or event.
    """

    def __init__(self, scheduler: Scheduler, rtt_s: float, counts: Counts, rates: Rates | None = None) -> None:
        rates = rates or Rates()
        self.tree = Tree()
        self.counts = counts
        self.watch_count = 0
        self.last_s = 0.0
        self._scheduler = scheduler
        self._half_s = rtt_s / 2
        self._read_s = 1 / rates.reads
        self._write_s = 1 / rates.writes
        self._multi_write_s = 1 / rates.writes_in_multi
        self._slow_s = rates.slow_s
        self._served_count = 0
        self._busy_s = 0.0
        self._zxid = 0
        self._session_count = 0
        self._data_watches: WatchTable = {}
        self._child_watches: WatchTable = {}

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open_session(self, process: Process, *, one_by_one: bool = False) -> Session:
        """Open a session; its connection costs nothing."""
        self._session_count += 1
        return Session(self._session_count, process, one_by_one)

    def close_session(self, session: Session) -> None:
        """Delete the session's ephemeral znodes and its watches, as at its end or expiry."""
        for table in (self._data_watches, self._child_watches):
            for path in [path for path, watchers in table.items() if session in watchers]:
                self.watch_count -= 1
                del table[path][session]
                if not table[path]:
                    del table[path]
        self._zxid += 1
        paths = list(self.tree.ephemerals.get(session.id, ()))
        for path in paths:
            self.tree.remove(path, self._zxid)
        self._serve(len(paths) * self._multi_write_s)
        self.counts.writes += len(paths)
        for path in paths:
            self._deleted(path)

    def restart_slow_requests(self) -> None:
        """Make the next request slow, so that the results do not depend on earlier requests."""
        self._served_count = SLOW_EACH - 1

    # --- time --------------------------------------------------------------------------------------------------------

    def _serve(self, service_s: float) -> float:
        """Return the time at which the server has served a request that is sent now."""
        arrival_s = self._scheduler.now_s + self._half_s
        self._served_count += 1
        if self._served_count % SLOW_EACH == 0:
            service_s += self._slow_s
        served_s = (arrival_s if arrival_s > self._busy_s else self._busy_s) + service_s
        self._busy_s = served_s
        return served_s

    def _respond(self, session: Session, service_s: float, done: Done, result: object) -> None:
        at_s = self._serve(service_s) + self._half_s
        self.last_s = at_s
        self._scheduler.post_at(session.process, at_s, done, (result,))

    def _respond_multi(
        self, session: Session, count: int, one_s: float, each_s: float, done: Done, result: Any
    ) -> None:
        if not session.one_by_one:
            self._respond(session, count * each_s, done, result)
            return
        at_s = max(self._scheduler.now_s, session.free_s) + count * (2 * self._half_s + one_s)
        session.free_s = self.last_s = at_s
        self._scheduler.post_at(session.process, at_s, done, (result,))

    # --- watches -----------------------------------------------------------------------------------------------------

    def _add_watch(self, table: WatchTable, path: str, session: Session, watch: Watch) -> None:
        watchers = table.setdefault(path, {})
        callbacks = watchers.get(session)
        if callbacks is None:
            watchers[session] = [watch]
            self.watch_count += 1
            self.counts.watches_set += 1
        else:
            callbacks.append(watch)

    def _fire(self, table: WatchTable, path: str, type_: EventType) -> None:
        watchers = table.pop(path, None)
        if not watchers:
            return
        event = WatchEvent(type_, KeeperState.SYNC_CONNECTED, path)
        at_s = max(self._busy_s, self._scheduler.now_s + self._half_s) + self._half_s
        self.last_s = at_s
        counts = self.counts
        self.watch_count -= len(watchers)
        counts.watches_fired += len(watchers)
        counts.zookeeper_bytes += len(watchers) * sizes.event_bytes(path)
        for session, callbacks in watchers.items():
            for watch in callbacks:
                self._scheduler.post_at(session.process, at_s, watch, (event,))

    def _created(self, path: str) -> None:
        self._fire(self._data_watches, path, EventType.NODE_CREATED)
        self._fire(self._child_watches, parent_of(path), EventType.NODE_CHILDREN_CHANGED)

    def _deleted(self, path: str) -> None:
        self._fire(self._data_watches, path, EventType.NODE_DELETED)
        self._fire(self._child_watches, path, EventType.NODE_DELETED)
        self._fire(self._child_watches, parent_of(path), EventType.NODE_CHILDREN_CHANGED)

    def watches_below(self, *, depth: int) -> int:
        """Return the number of watches on paths with at least this many components."""
        tables = (self._data_watches, self._child_watches)
        return sum(len(watchers) for table in tables for path, watchers in table.items() if path.count("/") >= depth)

    # --- reads -------------------------------------------------------------------------------------------------------

    def exists(self, session: Session, path: str, watch: Watch | None, done: Done) -> None:
        """Pass the znode or None to ``done``."""
        counts = self.counts
        node = self.tree.nodes.get(path)
        if watch is not None:
            self._add_watch(self._data_watches, path, session, watch)
        counts.requests += 1
        counts.reads += 1
        stat_bytes = sizes.STAT_BYTES if node is not None else 0
        counts.zookeeper_bytes += sizes.read_bytes(path) + sizes.REPLY_HEADER + stat_bytes
        self._respond(session, self._read_s, done, node)

    def get(self, session: Session, path: str, watch: Watch | None, done: Done) -> None:
        """Pass (data, czxid) to ``done``, or None if the znode does not exist; no watch is set then."""
        node = self._existing(session, path, done)
        if node is None:
            return
        if watch is not None:
            self._add_watch(self._data_watches, path, session, watch)
        data = node.data or b""
        self.counts.zookeeper_bytes += sizes.read_bytes(path) + sizes.data_bytes(data)
        self._respond(session, self._read_s, done, (data, node.czxid))

    def children(self, session: Session, path: str, watch: Watch | None, done: Done) -> None:
        """Pass the names of the children to ``done``, or None if the znode does not exist."""
        node = self._existing(session, path, done)
        if node is None:
            return
        if watch is not None:
            self._add_watch(self._child_watches, path, session, watch)
        names = list(node.children or ())
        self.counts.zookeeper_bytes += sizes.read_bytes(path) + sizes.children_bytes(names)
        self._respond(session, self._read_s, done, names)

    def _existing(self, session: Session, path: str, done: Done) -> Znode | None:
        """Count a read, and return the znode; if it does not exist, respond with None."""
        counts = self.counts
        node = self.tree.nodes.get(path)
        counts.requests += 1
        counts.reads += 1
        if node is None:
            counts.zookeeper_bytes += sizes.read_bytes(path) + sizes.REPLY_HEADER
            self._respond(session, self._read_s, done, None)
        return node

    def multi_read(self, session: Session, reads: Sequence[Read], done: Done) -> None:
        """Pass the results of a multi-read to ``done``."""
        results = [self._read(read) for read in reads]
        counts = self.counts
        counts.requests += 1
        counts.reads += len(reads)
        counts.zookeeper_bytes += sizes.multi_bytes(reads) + sizes.multi_read_reply_bytes(results)
        self._respond_multi(session, len(reads), self._read_s, self._read_s, done, results)

    def _read(self, read: Read) -> ReadResult:
        node = self.tree.nodes.get(read.path)
        if node is None:
            return NoNode(read.path)
        if isinstance(read, GetData):
            return node.data or b"", node.stat()
        return list(node.children or ())

    # --- writes ------------------------------------------------------------------------------------------------------

    def write(self, session: Session, operation: Operation, done: Done) -> None:
        """Apply one write and pass ``Created``, ``Stat``, None or a ``ZooKeeperError`` to ``done``."""
        counts = self.counts
        counts.requests += 1
        counts.writes += 1
        counts.zookeeper_bytes += sizes.REQUEST_HEADER + sizes.operation_bytes(operation) + sizes.REPLY_HEADER
        result: object
        self._zxid += 1
        try:
            result, node = self._apply(session, operation, self._zxid)
        except ZooKeeperError as error:
            self._respond(session, self._write_s, done, error)
            return
        if isinstance(operation, Create):
            counts.zookeeper_bytes += 4 + len(node.path if node else "") + sizes.STAT_BYTES
        elif not isinstance(operation, Delete):
            counts.zookeeper_bytes += sizes.STAT_BYTES
        self._respond(session, self._write_s, done, result)
        self._notify(operation, node)

    def multi(self, session: Session, operations: Sequence[Operation], done: Done) -> None:
        """Apply all operations or none; pass the results or ``MultiFailed`` to ``done``."""
        counts = self.counts
        counts.requests += 1
        writes = sum(not isinstance(operation, Check) for operation in operations)
        counts.writes += writes
        counts.zookeeper_bytes += sizes.multi_bytes(operations)
        applied: list[tuple[Operation, Znode | None]] = []
        results: list[OperationResult] = []
        self.tree.begin()
        self._zxid += 1
        for index, operation in enumerate(operations):
            try:
                result, node = self._apply(session, operation, self._zxid)
            except ZooKeeperError as error:
                self.tree.roll_back()
                failed = MultiFailed(index, error, [None] * len(operations))
                self._respond_multi(session, len(operations), self._write_s, self._multi_write_s, done, failed)
                return
            results.append(result)
            applied.append((operation, node))
        self.tree.commit()
        counts.zookeeper_bytes += sizes.multi_reply_bytes(operations)
        self._respond_multi(session, writes, self._write_s, self._multi_write_s, done, results)
        for operation, node in applied:
            self._notify(operation, node)

    def _apply(self, session: Session, operation: Operation, zxid: int) -> tuple[OperationResult, Znode | None]:
        tree = self.tree
        if isinstance(operation, Create):
            owner = session.id if operation.ephemeral else 0
            node = tree.create(
                operation.path, operation.data, OPEN_ACL, owner, operation.sequence, (), zxid, WALL_CLOCK_MS
            )
            return Created(node.path, node.stat()), node
        if isinstance(operation, Delete):
            return None, tree.delete(operation.path, operation.version, (), zxid)
        if isinstance(operation, Check):
            tree.check(operation.path, operation.version, ())
            return None, None
        node = tree.set_data(operation.path, operation.data, operation.version, (), zxid, WALL_CLOCK_MS)
        return node.stat(), node

    def _notify(self, operation: Operation, node: Znode | None) -> None:
        if node is None:
            return
        if isinstance(operation, Create):
            self._created(node.path)
        elif isinstance(operation, Delete):
            self._deleted(node.path)
        else:
            self._fire(self._data_watches, node.path, EventType.NODE_DATA_CHANGED)

    # --- without cost ------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes = b"") -> None:
        """Create a znode and its missing parents before a run: not counted, takes no time, fires no watch."""
        parent = parent_of(path)
        if parent != ROOT and parent not in self.tree.nodes:
            self.put(parent)
        self._zxid += 1
        self.tree.create(path, data, OPEN_ACL, 0, False, (), self._zxid, WALL_CLOCK_MS)
