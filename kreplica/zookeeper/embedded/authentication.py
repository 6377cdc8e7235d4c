"""Authentication of connections: addAuth, SASL DIGEST-MD5, and the dispatcher for unauthenticated clients."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from struct import Struct

from twisted.logger import Logger

from kreplica.zookeeper.digest_md5 import DigestServer
from kreplica.zookeeper.embedded.access import authenticate
from kreplica.zookeeper.embedded.commits import Group
from kreplica.zookeeper.embedded.connection import Connection, RequestDispatch, ServerInterface
from kreplica.zookeeper.embedded.dispatch import Dispatch
from kreplica.zookeeper.errors import AuthFailed, SessionClosedRequireSaslAuth
from kreplica.zookeeper.jute import pack_buffer
from kreplica.zookeeper.records import Opcode, reply_frame
from kreplica.zookeeper.requests import Auth, Sasl

_HEADER = Struct(">ii")
_ALLOWED_OPCODES = frozenset({Opcode.AUTH, Opcode.SASL, Opcode.PING, Opcode.CLOSE_SESSION})
_ALLOWED_WORDS = frozenset({b"ruok", b"srvr"})


class Authentication:
    """Handlers of requests that add identities to a connection; one per server.

    :param users: passwords by SASL user name; empty if the server does not support SASL.
    """

    _log = Logger()

    def __init__(self, users: Mapping[str, str], random: Random) -> None:
        self._users = users
        self._random = random

    def auth(self, connection: Connection, xid: int, request: Auth) -> None:
        """Add an identity that the client claims (addAuth)."""
        connection.add_identity(authenticate(request.scheme, request.credentials, connection.address))
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0))

    def sasl(self, connection: Connection, xid: int, request: Sasl) -> None:
        """Handle one step of a SASL exchange; a server without users responds without a token, as ZooKeeper does.

        After a failed exchange the connection is closed.
        """
        token, error_code = None, 0
        try:
            if self._users:
                token = self._step(connection, request.token)
        except AuthFailed as error:
            self._log.warn("{name}: SASL authentication failed: {error}", name=connection.name, error=str(error))
            error_code = error.code
        # The Java client expects a token in every response, even in an error response.
        connection.sink.append(reply_frame(xid, connection.barrier.zxid, error_code, pack_buffer(token)))
        if error_code:
            connection.end()

    def _step(self, connection: Connection, token: bytes) -> bytes:
        exchange = connection.exchange
        if exchange is None:
            exchange = connection.exchange = DigestServer(self._users, f"{self._random.getrandbits(128):032x}")
        response = exchange.step(token)
        if exchange.user is not None:
            connection.exchange = None
            connection.add_identity(("sasl", exchange.user), is_verified=True)
        return response


class UnauthenticatedDispatch:
    """Implements ``RequestDispatch`` for connections whose clients must authenticate before other requests.

    :param authenticated: dispatcher of the connection after its client has authenticated.
    """

    def __init__(self, authenticated: Dispatch) -> None:
        self._authenticated = authenticated

    @property
    def server(self) -> ServerInterface:
        """Functions and limits of the server."""
        return self._authenticated.server

    @property
    def durable(self) -> Group:
        """Group of all durable transactions."""
        return self._authenticated.durable

    @property
    def authenticated(self) -> RequestDispatch:
        """Request dispatcher of a connection whose client has authenticated."""
        return self._authenticated

    def respond_to_word(self, connection: Connection, letters: bytes) -> bool:
        """Respond to a four-letter word if it reveals nothing about clients and znodes."""
        return letters in _ALLOWED_WORDS and self._authenticated.respond_to_word(connection, letters)

    def serve(self, connection: Connection, data: bytes, start: int, end: int) -> None:
        """Serve one frame; requests other than authentication are rejected and the connection is closed."""
        if connection.session is not None and end - start >= _HEADER.size:
            xid, opcode = _HEADER.unpack_from(data, start)
            if opcode not in _ALLOWED_OPCODES:
                connection.received += 1
                self._authenticated.send_error(connection, xid, SessionClosedRequireSaslAuth())
                return
        self._authenticated.serve(connection, data, start, end)
