"""Handlers of session requests: handshake, close, expiry and watches."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from kreplica.zookeeper.embedded.commits import Commits
from kreplica.zookeeper.embedded.connection import Connection
from kreplica.zookeeper.embedded.sessions import NO_PASSWORD, Session, Sessions
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.watches import Watches, WatchMode
from kreplica.zookeeper.embedded.writes import Writes, event_frame
from kreplica.zookeeper.errors import NoWatcher
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import AddWatchMode, ConnectRequest, ConnectResponse, EventType, frame, reply_frame
from kreplica.zookeeper.requests import AddWatch, CheckWatches, CloseSession, Ping, RemoveWatches, SetWatches
from kreplica.zookeeper.responses import encode_count

_EXPIRED = ConnectResponse(0, 0, NO_PASSWORD)


class SessionRequests:
    """Opens, resumes and ends sessions; one per server.

    :param now: returns the time in seconds on the reactor's clock.
    :param sessions_max: see ``ZooKeeperServerSettings``.
    :ivar connections: session ID -> current connection of the session.
    """

    _log = Logger()

    def __init__(
        self,
        tree: Tree,
        sessions: Sessions,
        watches: Watches[Connection],
        commits: Commits,
        writes: Writes,
        now: Callable[[], float],
        wall_clock_ms: Callable[[], int],
        sessions_max: int,
    ) -> None:
        self._sessions_max = sessions_max
        self._tree = tree
        self._sessions = sessions
        self._watches = watches
        self._commits = commits
        self._writes = writes
        self._now = now
        self._wall_clock_ms = wall_clock_ms
        self.connections: dict[int, Connection] = {}

    # --- the handshake ---

    def connect(self, connection: Connection, data: bytes, position: int, end: int) -> None:
        """Handle the first frame of a connection: open a session or resume one."""
        request = ConnectRequest.decode(Reader(data, position, end, "connect request"))
        if request.last_zxid_seen > self._commits.zxid:
            # The client has seen a different history, for example because the data directory was deleted.
            self._log.warn(
                "refused {connection}: its client has seen transaction 0x{seen:x}, this server only 0x{mine:x}",
                connection=connection,
                seen=request.last_zxid_seen,
                mine=self._commits.zxid,
            )
            connection.abort()
            return
        if not request.session_id and not self._make_room():
            self._log.warn(
                "refused {connection}: there are {count} sessions (at most {count_max})",
                connection=connection,
                count=len(self._sessions.by_id),
                count_max=self._sessions_max,
            )
            connection.abort()
            return
        session = self._session_for(request)
        if session is None:
            self._log.info(
                "refused {name}: session 0x{id:x} has ended, or its password is wrong",
                name=connection.name,
                id=request.session_id,
            )
            self._commits.sink_for_tree(connection).append(frame(_EXPIRED.encode()))
            connection.end()
            return
        self._attach(connection, session)

    def _make_room(self) -> bool:
        """Close idle sessions without ephemerals if necessary; return False if no other session is allowed."""
        if len(self._sessions.by_id) < self._sessions_max:
            return True
        idle = [
            each
            for each in self._sessions.by_id.values()
            if each.session_id not in self.connections and each.session_id not in self._tree.ephemerals
        ]
        if not idle:
            return False
        idle.sort(key=lambda each: each.last_heard)
        for session in idle[: max(len(idle) // 10, 1)]:  # a tenth, so that this search is rarely needed
            self.end_session(session)
        return True

    def _session_for(self, request: ConnectRequest) -> Session | None:
        now = self._now()
        if request.session_id:
            session = self._sessions.reattach(request.session_id, request.password, request.timeout_ms, now)
        else:
            session = self._sessions.open(request.timeout_ms, self._wall_clock_ms(), now)
        if session is not None and session.session_id in self._sessions.changed:
            self._commits.zxid += 1
            self._commits.transaction_applied()
        return session

    def _attach(self, connection: Connection, session: Session) -> None:
        before = self.connections.pop(session.session_id, None)
        if before is not None:
            self._log.info("{session} moved to {name}", session=session, name=connection.name)
            before.abort()
        self.connections[session.session_id] = connection
        connection.session = session
        response = ConnectResponse(session.timeout_ms, session.session_id, session.password)
        self._commits.sink_for_tree(connection).append(frame(response.encode()))
        self._log.debug("{session} on {name}", session=session, name=connection.name)

    # --- end of a session ---

    def close(self, connection: Connection, xid: int, request: CloseSession) -> None:
        """Close the client's session; respond when the deletion of its ephemerals is durable, then disconnect."""
        session = connection.session
        assert session is not None, "requests come after the handshake"
        self.end_session(session)
        self._commits.sink_for_change(connection).append(reply_frame(xid, self._commits.zxid, 0))
        connection.end()

    def expire(self) -> None:
        """Close the sessions whose timeout has passed."""
        for session in self._sessions.expired(self._now()):
            self._log.info("{session} expired: no request for {ms} ms", session=session, ms=session.timeout_ms)
            connection = self.connections.get(session.session_id)
            self.end_session(session)
            if connection is not None:
                connection.abort()

    def end_session(self, session: Session) -> None:
        """Remove a session and its ephemerals in one transaction."""
        self._sessions.close(session.session_id)
        self.connections.pop(session.session_id, None)
        self._writes.remove(list(self._tree.ephemerals.get(session.session_id, ())))

    def connection_lost(self, connection: Connection) -> None:
        """Remove the connection's watches; its session remains."""
        self._watches.forget(connection)
        session = connection.session
        if session is not None and self.connections.get(session.session_id) is connection:
            del self.connections[session.session_id]

    # --- requests ---

    def ping(self, connection: Connection, xid: int, request: Ping) -> None:
        """Respond; ``Dispatch.serve`` has updated the session's ``last_heard``."""
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0))

    # --- watches ---

    def add_watch(self, connection: Connection, xid: int, request: AddWatch) -> None:
        """Register a persistent watch."""
        self._watches.add_persistent(request.path, connection, request.mode)
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0, encode_count(0)))

    def remove_watches(self, connection: Connection, xid: int, request: RemoveWatches) -> None:
        if not self._watches.remove(request.path, connection, request.type):
            raise NoWatcher(request.path)
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0))

    def check_watches(self, connection: Connection, xid: int, request: CheckWatches) -> None:
        if not self._watches.has(request.path, connection, request.type):
            raise NoWatcher(request.path)
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0))

    def set_watches(self, connection: Connection, xid: int, request: SetWatches) -> None:
        """Restore the watches of a reconnected client; events that the client missed are sent immediately."""
        sink = self._commits.sink_for_tree(connection)
        for type_, path in self._missed_events(connection, request):
            event = event_frame(type_, path, connection.barrier.zxid)
            sink.append(event)
            connection.count_unsent(len(event))
        for path in request.persistent:
            self._watches.add_persistent(path, connection, AddWatchMode.PERSISTENT)
        for path in request.recursive:
            self._watches.add_persistent(path, connection, AddWatchMode.PERSISTENT_RECURSIVE)
        sink.append(reply_frame(xid, connection.barrier.zxid, 0))

    def _missed_events(self, connection: Connection, request: SetWatches) -> list[tuple[EventType, str]]:
        nodes, last_zxid = self._tree.nodes, request.relative_zxid
        missed = []
        for path in request.data:
            node = nodes.get(path)
            if node is None:
                missed.append((EventType.NODE_DELETED, path))
            elif node.mzxid > last_zxid:
                missed.append((EventType.NODE_DATA_CHANGED, path))
            else:
                self._watches.data.add(path, connection, WatchMode.ONCE)
        for path in request.exists:
            if path in nodes:
                missed.append((EventType.NODE_CREATED, path))
            else:
                self._watches.data.add(path, connection, WatchMode.ONCE)
        for path in request.children:
            node = nodes.get(path)
            if node is None:
                missed.append((EventType.NODE_DELETED, path))
            elif node.pzxid > last_zxid:
                missed.append((EventType.NODE_CHILDREN_CHANGED, path))
            else:
                self._watches.children.add(path, connection, WatchMode.ONCE)
        return missed
