"""Dispatches requests to their handlers and converts errors to error responses."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol, TypeAlias

from kreplica.errors import ProtocolError
from kreplica.zookeeper.embedded.commits import Commits, Group
from kreplica.zookeeper.embedded.connection import Connection, RequestDispatch, ServerInterface
from kreplica.zookeeper.embedded.reads import Reads
from kreplica.zookeeper.embedded.session_requests import SessionRequests
from kreplica.zookeeper.embedded.writes import Writes
from kreplica.zookeeper.errors import AuthFailed, SessionClosedRequireSaslAuth, Unimplemented, ZooKeeperError
from kreplica.zookeeper.jute import Reader, pack_int32, pack_text
from kreplica.zookeeper.records import Opcode, reply_frame
from kreplica.zookeeper.requests import Auth, Sasl, decode_request

_HEADER = Struct(">ii")

# Called with (connection, xid, opcode, data, position, end); decodes ``data[position:end]`` itself.
InPlaceHandler: TypeAlias = Callable[[Connection, int, int, bytes, int, int], None]
# Called with (connection, xid, decoded request).
RequestHandler: TypeAlias = Callable[[Connection, int, Any], None]


class AuthenticationHandlers(Protocol):
    """Handlers of requests that add identities to a connection; implemented by ``Authentication``."""

    def auth(self, connection: Connection, xid: int, request: Auth) -> None: ...

    def sasl(self, connection: Connection, xid: int, request: Sasl) -> None: ...


class Dispatch:
    """Implements ``RequestDispatch``; one per server, used by all of its connections."""

    def __init__(
        self,
        reads: Reads,
        writes: Writes,
        sessions: SessionRequests,
        commits: Commits,
        server: ServerInterface,
        authentication: AuthenticationHandlers,
    ) -> None:
        self.server = server
        self._commits = commits
        self._connect = sessions.connect
        self._now = server.seconds
        self._in_place_handlers = _in_place_handlers(reads, writes)
        self._handlers = _request_handlers(reads, writes, sessions)
        self._handlers[Opcode.WHO_AM_I] = self._who_am_i
        self._handlers[Opcode.AUTH] = authentication.auth
        self._handlers[Opcode.SASL] = authentication.sasl

    @property
    def durable(self) -> Group:
        """Group of all durable transactions; responses that depend on it are sent immediately."""
        return self._commits.durable

    @property
    def authenticated(self) -> RequestDispatch:
        """Request dispatcher of a connection whose client has authenticated: this one."""
        return self

    def respond_to_word(self, connection: Connection, letters: bytes) -> bool:
        """Respond to a four-letter word; return False if the word is unknown."""
        text = self.server.word(letters)
        if text is None:
            return False
        connection.sink.append(text)
        return True

    def serve(self, connection: Connection, data: bytes, start: int, end: int) -> None:
        """Serve one frame.

        :raise ProtocolError, struct.error, UnicodeDecodeError: if the request is malformed.
        """
        connection.received += 1
        session = connection.session
        if session is None:
            self._connect(connection, data, start, end)
            return
        session.last_heard = self._now()
        if end - start < _HEADER.size:
            raise ProtocolError("request", f"only {end - start} bytes")
        xid, opcode = _HEADER.unpack_from(data, start)
        try:
            in_place = self._in_place_handlers.get(opcode)
            if in_place is not None:
                in_place(connection, xid, opcode, data, start + 8, end)
            else:
                self._serve_decoded(connection, xid, opcode, Reader(data, start + 8, end, "request"))
        except ZooKeeperError as error:
            self.send_error(connection, xid, error)

    def _serve_decoded(self, connection: Connection, xid: int, opcode: int, reader: Reader) -> None:
        handler = self._handlers.get(opcode)
        if handler is None:
            raise Unimplemented(None, f"operation {opcode} is not supported")
        handler(connection, xid, None if opcode == Opcode.WHO_AM_I else decode_request(opcode, reader))

    def send_error(self, connection: Connection, xid: int, error: ZooKeeperError) -> None:
        """Respond with an error; close the connection if its client is not authenticated."""
        # The error may reveal a change that is not durable yet, such as the creation of a znode.
        sink = self._commits.sink_for_tree(connection)
        sink.append(reply_frame(xid, connection.barrier.zxid, error.code))
        if isinstance(error, (AuthFailed, SessionClosedRequireSaslAuth)):
            connection.end()

    def _who_am_i(self, connection: Connection, xid: int, request: None) -> None:
        identities = [pack_text(scheme) + pack_text(name.partition(":")[0]) for scheme, name in connection.identities]
        body = pack_int32(len(identities)) + b"".join(identities)
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0, body))


def _in_place_handlers(reads: Reads, writes: Writes) -> dict[int, InPlaceHandler]:
    return {
        Opcode.GET_DATA: reads.get_data,
        Opcode.EXISTS: reads.exists,
        Opcode.CREATE: writes.change,
        Opcode.CREATE2: writes.change,
        Opcode.CREATE_CONTAINER: writes.change,
        Opcode.CREATE_TTL: writes.change,
        Opcode.DELETE: writes.change,
        Opcode.SET_DATA: writes.change,
        Opcode.CHECK: writes.change,
        Opcode.MULTI: writes.multi,
    }


def _request_handlers(reads: Reads, writes: Writes, sessions: SessionRequests) -> dict[int, RequestHandler]:
    return {
        Opcode.GET_CHILDREN: reads.get_children,
        Opcode.GET_CHILDREN2: reads.get_children,
        Opcode.GET_ACL: reads.get_acl,
        Opcode.SYNC: reads.sync,
        Opcode.GET_EPHEMERALS: reads.get_ephemerals,
        Opcode.GET_ALL_CHILDREN_NUMBER: reads.get_all_children_number,
        Opcode.MULTI_READ: reads.multi_read,
        Opcode.SET_ACL: writes.set_acl,
        Opcode.PING: sessions.ping,
        Opcode.CLOSE_SESSION: sessions.close,
        Opcode.ADD_WATCH: sessions.add_watch,
        Opcode.REMOVE_WATCHES: sessions.remove_watches,
        Opcode.CHECK_WATCHES: sessions.check_watches,
        Opcode.SET_WATCHES: sessions.set_watches,
        Opcode.SET_WATCHES2: sessions.set_watches,
    }
