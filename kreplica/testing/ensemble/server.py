"""Process of one server: serves reads and watches from its replica, and forwards writes to the leader."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from kreplica.errors import ProtocolError
from kreplica.runtime import Runtime
from kreplica.testing.ensemble.ensemble import Ensemble, Member
from kreplica.testing.ensemble.request import ForwardedRequest, Pending, PendingRequests
from kreplica.testing.ensemble.term import TICK_MS, Link
from kreplica.testing.ensemble.transactions import SessionClosed, Transaction
from kreplica.zookeeper.embedded.authentication import Authentication
from kreplica.zookeeper.embedded.commits import Group
from kreplica.zookeeper.embedded.connection import Connection, ServerInterface
from kreplica.zookeeper.embedded.dispatch import Dispatch
from kreplica.zookeeper.embedded.reads import Reads
from kreplica.zookeeper.embedded.session_requests import SessionRequests
from kreplica.zookeeper.embedded.sessions import NO_PASSWORD, Session, Sessions
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import FRAME_SIZE_MAX, ConnectRequest, ConnectResponse, Opcode, frame

PORT = 2181
HEADER = struct.Struct(">ii")
SESSIONS_MAX = 20_000

REPORT_S = 0.5
"""Interval of the server's reports to the leader about the sessions whose clients have sent requests."""

WRITES = frozenset(
    {
        Opcode.CREATE,
        Opcode.CREATE2,
        Opcode.CREATE_CONTAINER,
        Opcode.CREATE_TTL,
        Opcode.DELETE,
        Opcode.SET_DATA,
        Opcode.SET_ACL,
        Opcode.CHECK,
        Opcode.MULTI,
    }
)
FORWARDED = WRITES | {Opcode.SYNC, Opcode.CLOSE_SESSION}
EXPIRED = ConnectResponse(0, 0, NO_PASSWORD)


class EnsembleServer(Factory):
    """Implements ``RequestDispatch`` for its connections, and ``ServerProcess`` for the ensemble.

    A connection's requests are completed in order. Reads, pings and watches are handled by the embedded
    server's ``Dispatch``, on this server's replica; writes, sync and session requests by the leader.

    :param interface: address on which the server listens.
    :ivar link: connection with the leader; None without a leader.
    """

    noisy = False
    _log = Logger()

    def __init__(self, runtime: Runtime, ensemble: Ensemble, member: Member, interface: str) -> None:
        self.runtime = runtime
        self.link: Link | None = None
        self.is_serving = False
        self._ensemble = ensemble
        self._member = member
        self._interface = interface
        self._connections: dict[Connection, PendingRequests] = {}
        self._listener: Any = None
        self._reported_s = 0.0
        self._serving: Deferred[None] = Deferred()
        self.server = ServerInterface(
            self._admit,
            self._forget,
            lambda word: None,
            FRAME_SIZE_MAX,
            runtime.reactor.seconds,
            lambda function: runtime.reactor.callLater(0, function),
        )

    def start(self) -> Deferred[None]:
        """Listen, and wait for a leader."""
        self._listener = self.runtime.reactor.listenTCP(PORT, self, interface=self._interface)
        self._ensemble.add_process(self._member.number, self)
        replica = self._member.replica
        sessions = SessionRequests(
            replica.tree,
            Sessions(TICK_MS, self.runtime.random),
            replica.watches,
            replica.commits,
            replica.writes,
            self.runtime.reactor.seconds,
            self.runtime.wall_clock_ms,
            SESSIONS_MAX,
        )
        reads = Reads(replica.tree, replica.watches, replica.commits)
        authentication = Authentication(self._ensemble.options.users, self.runtime.random)
        self._local = Dispatch(reads, replica.writes, sessions, replica.commits, self.server, authentication)
        self._report()
        return self._serving

    def stop(self) -> Deferred[None]:
        """Stop listening and close all connections; the process must be killed afterwards."""
        stopped: Deferred[None] = maybeDeferred(self._listener.stopListening)
        return stopped.addCallback(lambda _: self.leave())

    # --- ensemble ----------------------------------------------------------------------------------------------------

    def follow(self, link: Link) -> None:
        """Serve clients after applying the transactions already sent on this link."""
        self.link = link
        link.down.send(self._serve_clients)

    def _serve_clients(self) -> None:
        self.is_serving = True
        if not self._serving.called:
            self._serving.callback(None)

    def applied(self, transaction: Transaction) -> None:
        """Send the watch events of a transaction, and close the connection of a closed session."""
        self._member.replica.flush()
        if isinstance(transaction, SessionClosed):
            for connection, pending in list(self._connections.items()):
                if connection.session_id == transaction.session_id and not _is_closing(pending):
                    connection.abort()

    def leave(self) -> None:
        """Close all connections: the server has no leader."""
        self.is_serving = False
        link, self.link = self.link, None
        for connection in list(self._connections):
            connection.abort()
        if link is not None:
            link.close()
            if link.term.number == self._member.number:
                link.term.stop()
            self._ensemble.rejoin_later(self)

    def _report(self) -> None:
        now_s = self.runtime.reactor.seconds()
        active_ids = [
            connection.session_id
            for connection in self._connections
            if connection.session is not None and connection.session.last_heard >= self._reported_s
        ]
        if self.link is not None and active_ids:
            self.link.up.send(self.link.term.restart_timeouts, active_ids)
        self._reported_s = now_s
        self.runtime.reactor.callLater(REPORT_S, self._report)

    # --- connections -------------------------------------------------------------------------------------------------

    def buildProtocol(self, addr: IAddress | None) -> Connection:
        connection = Connection(self, self.runtime.reactor.seconds())
        connection.factory = self
        return connection

    def _admit(self, connection: Connection) -> bool:
        if self.is_serving:
            self._connections[connection] = deque()
        return self.is_serving

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._member.replica.watches.forget(connection)

    def has_session(self, session_id: int) -> bool:
        """Return True if a session is connected to this server."""
        return any(connection.session_id == session_id for connection in self._connections)

    def disconnect_session(self, session_id: int) -> bool:
        """Close a session's connection, so that its client moves to another server; return False if it has none."""
        for connection in list(self._connections):
            if connection.session_id == session_id:
                connection.abort()
                return True
        return False

    @property
    def durable(self) -> Group:
        """Group of the applied transactions."""
        return self._member.replica.commits.durable

    @property
    def authenticated(self) -> EnsembleServer:
        """Request dispatcher of a connection whose client has authenticated: this server, as before."""
        return self

    def respond_to_word(self, connection: Connection, letters: bytes) -> bool:
        return False

    # --- requests ----------------------------------------------------------------------------------------------------

    def serve(self, connection: Connection, data: bytes, start: int, end: int) -> None:
        """Serve one frame, or keep it until earlier requests of the connection are completed."""
        pending = self._connections.get(connection)
        link = self.link
        if pending is None or link is None:
            return
        if connection.session is None:
            if pending:
                pending.append(Pending(data[start:end]))
            else:
                self._connect(link, connection, pending, data[start:end])
            return
        connection.session.last_heard = self.runtime.reactor.seconds()
        if end - start < HEADER.size:
            raise ProtocolError("request", f"only {end - start} bytes")
        xid, opcode = HEADER.unpack_from(data, start)
        if opcode in FORWARDED:
            self._forward(link, connection, pending, xid, opcode, data[start + HEADER.size : end])
        elif pending:
            pending.append(Pending(data[start:end]))
        else:
            self._local.serve(connection, data, start, end)

    def _connect(self, link: Link, connection: Connection, pending: PendingRequests, data: bytes) -> None:
        request = ConnectRequest.decode(Reader(data, 0, len(data), "connect request"))
        if request.last_zxid_seen > self._member.replica.zxid:
            self._log.info("refused {connection}: its client has seen later transactions", connection=connection)
            connection.abort()
            return
        handshake = Pending()
        pending.append(handshake)

        def attach(session: Session | None) -> None:
            self._complete(connection, handshake, partial(self._attach, connection, session))

        if request.session_id:
            link.up.send(link.term.resume_session, link, request, attach)
        else:
            link.up.send(link.term.open_session, link, request.timeout_ms, attach)

    def _attach(self, connection: Connection, session: Session | None) -> None:
        if session is None:
            connection.sink.append(frame(EXPIRED.encode()))
            connection.end()
            return
        connection.session = Session(*session.row(), self.runtime.reactor.seconds())
        response = ConnectResponse(session.timeout_ms, session.session_id, session.password)
        connection.sink.append(frame(response.encode()))

    def _forward(
        self, link: Link, connection: Connection, pending: PendingRequests, xid: int, opcode: int, body: bytes
    ) -> None:
        term = link.term
        forwarded = Pending()
        forwarded.is_close = opcode == Opcode.CLOSE_SESSION
        pending.append(forwarded)
        request = ForwardedRequest(connection, forwarded, xid, opcode, body)
        handle = {Opcode.SYNC: term.sync, Opcode.CLOSE_SESSION: term.close_session}.get(Opcode(opcode), term.write)
        link.up.send(handle, link, request, self)

    # --- responses of the leader -------------------------------------------------------------------------------------

    def respond(self, request: ForwardedRequest, frames: bytes) -> None:
        """Send the response of a forwarded request after those of earlier requests."""

        def finish() -> None:
            request.connection.sink.append(frames)
            if request.pending.is_close:
                request.connection.end()

        self._complete(request.connection, request.pending, finish)

    def disconnect(self, request: ForwardedRequest) -> None:
        """Close the connection of a session that has moved to another server."""
        request.connection.abort()

    def _complete(self, connection: Connection, completed: Pending, finish: Callable[[], None]) -> None:
        completed.finish = finish
        pending = self._connections.get(connection)
        while pending and not connection.closed:
            first = pending[0]
            if first.request is not None:
                pending.popleft()
                self._serve_pending(connection, pending, first.request)
            elif first.finish is not None:
                pending.popleft()
                first.finish()
            else:
                break
        connection.flush()

    def _serve_pending(self, connection: Connection, pending: PendingRequests, request: bytes) -> None:
        try:
            self._local.serve(connection, request, 0, len(request))
        except (ProtocolError, struct.error, UnicodeDecodeError) as error:
            self._log.info("closing {name}: not a ZooKeeper request: {error}", name=connection.name, error=error)
            connection.abort()


def _is_closing(pending: PendingRequests) -> bool:
    return any(request.is_close for request in pending)

