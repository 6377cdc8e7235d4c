"""``Cluster``: the Twisted client's entry point, which runs ``ClusterCore`` on a reactor."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.client_runtime import ClientRuntime, default_runtime
from kreplica.client.connection import Connection
from kreplica.client.connections import Connections
from kreplica.client_core.addresses import Address
from kreplica.client_core.cluster import ClusterCore
from kreplica.client_core.errors import ClientClosed
from kreplica.client_core.metadata import ClusterView
from kreplica.client_core.options import ClientOptions
from kreplica.runtime.gather import gather
from kreplica.runtime.pause import pause
from kreplica.runtime.shared_coroutine import SharedCoroutine
from kreplica.wire.messages import Api

T = TypeVar("T")


class Cluster(ClusterCore[Connection]):
    """Metadata of one cluster and connections to its brokers.

    Use it as an asynchronous context manager, or call ``close``.  Metadata is requested and connections are opened when
    needed.  Producers, consumers and admins that share a ``Cluster`` share its metadata; producers and consumers have
    their own connections.

    :param bootstrap: brokers to contact first: ``"kafka-1:9092,kafka-2:9092"`` or pairs of host and port.
    :param runtime: reactor, randomness, clock and network; by default those of the process.
    :raise ValueError: ``bootstrap`` is malformed.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[tuple[str, int]],
        *,
        options: ClientOptions | None = None,
        runtime: ClientRuntime | None = None,
    ) -> None:
        self.runtime = runtime or default_runtime()
        super().__init__(bootstrap, options or ClientOptions(), self.runtime.random)
        self._connections = self.new_connections()
        self._pauses: dict[Deferred[None], None] = {}
        self._refreshing: tuple[frozenset[str], SharedCoroutine[ClusterView]] | None = None

    async def close(self) -> None:
        """Close the connections; operations in progress fail with ``ClientClosed``."""
        self.is_closed = True
        for waiting in list(self._pauses):
            waiting.cancel()
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not GeneratorExit:
            await self.close()

    async def refresh(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Request the cluster's metadata; concurrent callers share a request if it covers their topics.

        :param topics: topics to include in addition to those in ``view``; None includes all topics of the cluster.
        :raise ClientError: no broker responded.
        """
        if topics is None:
            return await super().refresh(None)
        names = frozenset((*self.view.topics, *topics))
        in_progress = self._refreshing
        if in_progress is None or in_progress[1].is_over or not names <= in_progress[0]:
            in_progress = self._refreshing = names, SharedCoroutine(self._request_metadata(names))
        return await in_progress[1].wait()

    def new_connections(self) -> Connections:
        """Return separate connections, for example for long requests; the caller must close them."""
        return Connections(self.runtime, self.options)

    # --- functions that the client core calls ---

    def now_s(self) -> float:
        """Return the reactor's monotonic time in seconds."""
        return self.runtime.reactor.seconds()

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970."""
        return self.runtime.wall_clock_ms()

    async def sleep(self, seconds: float) -> None:
        """Wait.

        :raise ClientClosed: the client was closed in the meantime.
        """
        waiting = pause(self.runtime.reactor, seconds)
        self._pauses[waiting] = None
        try:
            await waiting
        except CancelledError:
            if self.is_closed:
                raise ClientClosed("the client was closed") from None
            raise
        finally:
            del self._pauses[waiting]

    async def gather(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines concurrently; return their results in order, or raise the first error."""
        return await gather(coroutines)

    async def connection_to(self, address: Address) -> Connection:
        """Return the shared connection to an address; open it if there is none.

        :raise ClientError: the connection could not be opened.
        """
        return await self._connections.to(address)

    def has_connection(self, address: Address) -> bool:
        """Return True if the shared connection to an address is open."""
        return self._connections.find_open(address) is not None

    async def exchange(
        self, connection: Connection, api: Api, version: int, body: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Send a request and return the body of its response.

        :raise ClientError: no response was received.
        """
        return await connection.request(api, version, body, timeout_s=timeout_s)
