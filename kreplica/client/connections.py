"""Connections of one owner: one per broker, opened on first use and reopened after a loss."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from kreplica.client.client_runtime import ClientRuntime
from kreplica.client.connection import Connection, connect
from kreplica.client_core.addresses import Address
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientClosed, ClientError, ConnectionFailed
from kreplica.client_core.options import ClientOptions
from kreplica.errors import KafkaError
from kreplica.runtime.gather import gather
from kreplica.runtime.pause import pause
from kreplica.runtime.shared_coroutine import SharedCoroutine

log = Logger()


class _Slot:
    """Connection to one address.

    :ivar failures: number of consecutive failures.
    :ivar retry_at_s: time of the next attempt; until then, ``last_error`` is raised to callers.
    """

    __slots__ = ("connecting", "connection", "failures", "last_error", "retry_at_s")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.connecting: SharedCoroutine[Connection] | None = None
        self.failures = 0
        self.retry_at_s = 0.0
        self.last_error: ClientError | None = None


class Connections:
    """Connections of one owner, which must close them.

    Consumers and other senders of long requests have their own connections, because a delayed response also delays all
    later responses on its connection.
    """

    def __init__(self, runtime: ClientRuntime, options: ClientOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._slots: dict[Address, _Slot] = {}
        self._closed = False

    async def to(self, address: Address) -> Connection:
        """Return the connection to an address, with negotiated versions; open it if there is none.

        After a failed attempt, its error is raised immediately until the backoff delay is over.

        :raise ClientClosed: the connections have been closed.
        :raise ClientError: the connection could not be opened.
        """
        if self._closed:
            raise ClientClosed(f"{address}: the client is closed")
        slot = self._slots.setdefault(address, _Slot())
        if slot.connection is not None and not slot.connection.closed:
            return slot.connection
        connecting = slot.connecting
        if connecting is None:
            if slot.last_error is not None and self._runtime.reactor.seconds() < slot.retry_at_s:
                raise ConnectionFailed(str(slot.last_error)) from slot.last_error
            connecting = SharedCoroutine(self._connect(address, slot))
            if not connecting.is_over:
                slot.connecting = connecting
        try:
            return await connecting.wait()
        except CancelledError:
            if self._closed:
                raise ClientClosed(f"{address}: the client was closed") from None
            if self._slots.get(address) is not slot:
                raise ConnectionFailed(f"{address}: the address is no longer in use") from None
            raise

    def find_open(self, address: Address) -> Connection | None:
        """Return the open connection to an address, or None."""
        slot = self._slots.get(address)
        if slot is None or slot.connection is None or slot.connection.closed:
            return None
        return slot.connection

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over the open connections."""
        made = [slot.connection for slot in self._slots.values()]
        return iter([connection for connection in made if connection is not None and not connection.closed])

    def forget(self, address: Address) -> None:
        """Close the connection to an address that is no longer in use; its requests fail."""
        slot = self._slots.pop(address, None)
        if slot is not None:
            if slot.connecting is not None:
                slot.connecting.cancel()
            if slot.connection is not None:
                slot.connection.close().addErrback(lambda failure: log.failure("cannot close a connection", failure))

    async def close(self) -> None:
        """Close all connections; requests fail with ``ConnectionLost``, calls of ``to`` with ``ClientClosed``."""
        self._closed = True
        open_ones, slots = list(self), list(self._slots.values())
        self._slots.clear()
        for slot in slots:
            if slot.connecting is not None:
                slot.connecting.cancel()
        await gather([_close(connection) for connection in open_ones])
        await pause(self._runtime.reactor, 0)  # lets cancelled coroutines end in this iteration

    async def _connect(self, address: Address, slot: _Slot) -> Connection:
        runtime, options = self._runtime, self._options
        try:
            slot.connection = await self._open(address)
        except ClientError as error:
            slot.failures += 1
            wait_s = backoff_s(runtime.random, slot.failures, options.backoff_s, options.backoff_s_max)
            slot.retry_at_s, slot.last_error = runtime.reactor.seconds() + wait_s, error
            raise
        finally:
            slot.connecting = None
        slot.failures, slot.last_error = 0, None
        return slot.connection

    async def _open(self, address: Address) -> Connection:
        options = self._options
        connection = await connect(
            self._runtime.reactor,
            address.host,
            address.port,
            client_id=options.client_id,
            frame_size_max=options.response_size_max,
            connect_timeout_s=options.connect_timeout_s,
            endpoint=self._runtime.endpoint,
        )
        try:
            await connection.negotiate(options.connect_timeout_s)
        except BaseException as error:
            connection.abort()  # no pending data needs to be written
            if isinstance(error, KafkaError) and not isinstance(error, ClientError):
                raise ConnectionFailed(f"{address}: {error}") from error
            raise
        return connection


async def _close(connection: Connection) -> None:
    await connection.close()
