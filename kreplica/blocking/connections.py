"""Connections of one owner, one per broker, opened on first use and after a loss.

Owners of long requests have their own connections, because responses arrive in request order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kreplica.blocking.connection import Connection
from kreplica.client_core.addresses import Address


class Connections:
    """Connections of one owner, which closes them.

    :param open_connection: connects to an address.
    """

    def __init__(self, open_connection: Callable[[Address], Connection]) -> None:
        self._open = open_connection
        self._made: dict[Address, Connection] = {}

    def to(self, address: Address) -> Connection:
        """Return the connection to an address; open it if there is none.

        :raise ClientError: the connection could not be opened.
        """
        connection = self._made.get(address)
        if connection is None or connection.closed:
            connection = self._made[address] = self._open(address)
        return connection

    def to_open(self, address: Address) -> Connection | None:
        """Return the open connection to an address, or None."""
        connection = self._made.get(address)
        return None if connection is None or connection.closed else connection

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over the open connections."""
        return iter([connection for connection in self._made.values() if not connection.closed])

    def close(self) -> None:
        """Close all connections."""
        for connection in self._made.values():
            connection.close()
        self._made.clear()
