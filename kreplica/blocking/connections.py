"""Connections of one owner: one per broker, opened on first use and reopened after a loss.

Senders of long requests have their own connections, because a broker sends responses in request order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kreplica.blocking.connection import Connection
from kreplica.client_core.addresses import Address


class Connections:
    """Connections of one owner, which must close them.

    :param open_connection: connects to an address.
    """

    def __init__(self, open_connection: Callable[[Address], Connection]) -> None:
        self._open = open_connection
        self._connections: dict[Address, Connection] = {}

    def to(self, address: Address) -> Connection:
        """Return the connection to an address; open it if there is none.

        :raise ClientError: the connection could not be opened.
        """
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = self._connections[address] = self._open(address)
        return connection

    def get_open(self, address: Address) -> Connection | None:
        """Return the connection to an address if it is open, otherwise None."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over the open connections."""
        return iter([connection for connection in self._connections.values() if not connection.closed])

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
