"""Requests that a server forwards to the leader, and the order of a connection's responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kreplica.zookeeper.embedded.access import Identity
from kreplica.zookeeper.embedded.commits import Group
from kreplica.zookeeper.embedded.connection import Connection


class Pending:
    """Request whose response has not been sent yet.

    :ivar request: frame to serve from the replica after all earlier requests; None for a forwarded request.
    :ivar is_close: True for the request that closes the session.
    :ivar finish: sends the response of a forwarded request; None until the leader has responded.
    """

    __slots__ = ("finish", "is_close", "request")

    def __init__(self, request: bytes | None = None) -> None:
        self.request = request
        self.is_close = False
        self.finish: Callable[[], None] | None = None


PendingRequests = deque[Pending]
"""Requests of one connection, in order: a read waits until the server has applied the connection's earlier writes."""


class ForwardedRequest:
    """A client's request at the leader, which executes it on behalf of the client (``Requester``).

    :param applied: group of the leader's applied transactions.
    :ivar sink: the response.
    """

    def __init__(self, connection: Connection, pending: Pending, xid: int, opcode: int, body: bytes) -> None:
        self.connection = connection
        self.pending = pending
        self.xid = xid
        self.opcode = opcode
        self.body = body
        self.session_id = connection.session_id
        self.identities: tuple[Identity, ...] = connection.identities
        self.sink: list[bytes] = []
        self.barrier = connection.barrier

    def release(self, responses: list[bytes], durable: Group | None) -> None:
        """Do nothing: the leader sends the response with the transaction."""

    def count_unsent(self, size: int) -> None:
        """Do nothing."""
