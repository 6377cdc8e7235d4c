"""The connections of one owner, one to each broker, opened when first asked for and again after a loss.

Who waits long on a broker, as readers do, has connections of its own: answers come in the order of the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kreplica.blocking.connection import Connection
from kreplica.client_core.addresses import Address


class Connections:
    """Lives as long as its owner, which closes it.

    :param open_connection: connects to an address.
    """

    def __init__(self, open_connection: Callable[[Address], Connection]) -> None:
        self._open = open_connection
        self._made: dict[Address, Connection] = {}

    def to(self, address: Address) -> Connection:
        """The connection to an address.

        :raise ClientError: none comes about.
        """
        connection = self._made.get(address)
        if connection is None or connection.closed:
            connection = self._made[address] = self._open(address)
        return connection

    def to_open(self, address: Address) -> Connection | None:
        """The connection to an address where there is one that is open."""
        connection = self._made.get(address)
        return None if connection is None or connection.closed else connection

    def __iter__(self) -> Iterator[Connection]:
        """Those that are open."""
        return iter([connection for connection in self._made.values() if not connection.closed])

    def close(self) -> None:
        """Close them all."""
        for connection in self._made.values():
            connection.close()
        self._made.clear()
