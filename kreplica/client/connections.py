"""Connections of one owner, one per broker, opened on first use and after a loss."""

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

    :ivar failures: consecutive failures; no attempt before ``retry_at_s``, until then callers get ``last_error``.
    """

    __slots__ = ("connecting", "connection", "failures", "last_error", "retry_at_s")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.connecting: SharedCoroutine[Connection] | None = None
        self.failures = 0
        self.retry_at_s = 0.0
        self.last_error: ClientError | None = None


class Connections:
    """Connections of one owner, which closes them.

    Owners of long requests, like consumers, have their own connections, because responses arrive in request order.
    """

    def __init__(self, runtime: ClientRuntime, options: ClientOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._ways: dict[Address, _Slot] = {}
        self._closed = False

    async def to(self, address: Address) -> Connection:
        """Return the connection to an address, with negotiated versions; open it if there is none.

        After a failed attempt, callers get its error at once until a backoff delay is over.

        :raise ClientClosed: the connections were closed.
        :raise ClientError: the connection could not be opened.
        """
        if self._closed:
            raise ClientClosed(f"{address}: the client is closed")
        way = self._ways.setdefault(address, _Slot())
        if way.connection is not None and not way.connection.closed:
            return way.connection
        connecting = way.connecting
        if connecting is None:
            if way.last_error is not None and self._runtime.reactor.seconds() < way.retry_at_s:
                raise ConnectionFailed(str(way.last_error)) from way.last_error
            connecting = SharedCoroutine(self._connect(address, way))
            if not connecting.is_over:
                way.connecting = connecting
        try:
            return await connecting.wait()
        except CancelledError:
            if self._closed:
                raise ClientClosed(f"{address}: the client was closed") from None
            if self._ways.get(address) is not way:
                raise ConnectionFailed(f"{address}: the address is no longer in use") from None
            raise

    def to_open(self, address: Address) -> Connection | None:
        """Return the open connection to an address, or None."""
        way = self._ways.get(address)
        if way is None or way.connection is None or way.connection.closed:
            return None
        return way.connection

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over the open connections."""
        made = [way.connection for way in self._ways.values()]
        return iter([connection for connection in made if connection is not None and not connection.closed])

    def forget(self, address: Address) -> None:
        """Close the connection to an address that is no longer in use; its requests fail."""
        way = self._ways.pop(address, None)
        if way is not None:
            if way.connecting is not None:
                way.connecting.cancel()
            if way.connection is not None:
                way.connection.close().addErrback(lambda failure: log.failure("cannot close a connection", failure))

    async def close(self) -> None:
        """Close all connections; requests fail with ``ConnectionLost``, callers of ``to`` with ``ClientClosed``."""
        self._closed = True
        open_ones, ways = list(self), list(self._ways.values())
        self._ways.clear()
        for way in ways:
            if way.connecting is not None:
                way.connecting.cancel()
        await gather([_closed(connection) for connection in open_ones])
        await pause(self._runtime.reactor, 0)  # cancelled work ends in this iteration

    async def _connect(self, address: Address, way: _Slot) -> Connection:
        runtime, options = self._runtime, self._options
        try:
            way.connection = await self._open(address)
        except ClientError as error:
            way.failures += 1
            wait_s = backoff_s(runtime.random, way.failures, options.backoff_s, options.backoff_s_max)
            way.retry_at_s, way.last_error = runtime.reactor.seconds() + wait_s, error
            raise
        finally:
            way.connecting = None
        way.failures, way.last_error = 0, None
        return way.connection

    async def _open(self, address: Address) -> Connection:
        options = self._options
        connection = await connect(
            self._runtime.reactor,
            address.host,
            address.port,
            client_id=options.client_id,
            frame_size_max=options.answer_size_max,
            connect_timeout_s=options.connect_timeout_s,
            endpoint=self._runtime.endpoint,
        )
        try:
            await connection.negotiate(options.connect_timeout_s)
        except BaseException as error:
            connection.abort()  # pending data is irrelevant
            if isinstance(error, KafkaError) and not isinstance(error, ClientError):
                raise ConnectionFailed(f"{address}: {error}") from error
            raise
        return connection


async def _closed(connection: Connection) -> None:
    await connection.close()
