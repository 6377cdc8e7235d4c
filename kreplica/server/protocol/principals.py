"""Principal of a request."""

from __future__ import annotations

from kreplica.interfaces import Principal
from kreplica.server.protocol.connection import Connection


def principal_of(connection: Connection, client_id: str | None) -> Principal:
    """Return the principal of a request, from its connection and client ID."""
    return Principal(connection.user, connection.host, connection.listener, client_id)
