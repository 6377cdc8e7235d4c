"""Who sends a request."""

from __future__ import annotations

from kreplica.interfaces import Principal
from kreplica.server.protocol.request import Request

ANONYMOUS = "User:ANONYMOUS"
"""Everybody, as long as listeners do not authenticate anybody."""


NOBODY = Principal(ANONYMOUS, "", "", None)


def principal_of(request: Request) -> Principal:
    """The client of a request, by what its connection tells."""
    connection = request.connection
    host = connection.peer.rpartition(":")[0].strip("[]")
    return Principal(ANONYMOUS, host, connection.listener, request.client_id)
