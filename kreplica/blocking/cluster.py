"""``Cluster``: the blocking client's entry point, which runs ``ClusterCore`` without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from kreplica.blocking.blocking_runtime import BlockingRuntime, default_runtime
from kreplica.blocking.connection import Connection
from kreplica.blocking.connections import Connections
from kreplica.blocking.coroutines import run
from kreplica.client_core.addresses import Address
from kreplica.client_core.cluster import ClusterCore
from kreplica.client_core.metadata import ClusterView, CoordinatorKind, PartitionView, TopicView
from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.wire.messages import Api

T = TypeVar("T")


class BlockingCore(ClusterCore[Connection]):
    """A ``ClusterCore`` whose awaitables block instead of suspending."""

    def __init__(
        self, bootstrap: str | Iterable[tuple[str, int]], options: ClientOptions, runtime: BlockingRuntime
    ) -> None:
        super().__init__(bootstrap, options, runtime.random)
        self._runtime = runtime
        self.connections = Connections(lambda address: Connection.open(address, options, runtime))

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self._runtime.clock()

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970."""
        return self._runtime.wall_clock_ms()

    async def sleep(self, seconds: float) -> None:
        """Block for a number of seconds."""
        self._runtime.sleep(seconds)

    async def gather(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines one after another; return their results in order, or raise the first error."""
        waiting = list(coroutines)
        try:
            return [await coroutine for coroutine in waiting]
        finally:
            for coroutine in waiting:
                coroutine.close()

    async def connection_to(self, address: Address) -> Connection:
        """Return the connection to an address; open it if there is none.

        :raise ClientError: the connection could not be opened.
        """
        return self.connections.to(address)

    def has_connection(self, address: Address) -> bool:
        """Return True if the connection to an address is open."""
        return self.connections.get_open(address) is not None

    async def exchange(
        self, connection: Connection, api: Api, version: int, body: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Send a request and return the body of its response.

        :raise ClientError: no response was received.
        """
        return connection.exchange(api, version, body, timeout_s)


class Cluster:
    """Metadata of one cluster and connections to its brokers; use it as a context manager, or call ``close``.

    Metadata is requested when it is first needed.  For the methods, see those of the same name in ``ClusterCore``.

    :param bootstrap: bootstrap brokers, as ``"kafka-1:9092,kafka-2:9092"`` or as pairs of host and port.
    :raise ValueError: ``bootstrap`` is malformed.
    :ivar core: the client core; ``coroutines.run`` runs its coroutines.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[tuple[str, int]],
        *,
        options: ClientOptions | None = None,
        runtime: BlockingRuntime | None = None,
    ) -> None:
        self.options = options or ClientOptions()
        self.runtime = runtime or default_runtime()
        self.core = BlockingCore(bootstrap, self.options, self.runtime)

    @property
    def view(self) -> ClusterView:
        """The metadata that was received last."""
        return self.core.view

    def close(self) -> None:
        """Close the connections."""
        self.core.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def new_connections(self) -> Connections:
        """Return a new set of connections, for requests that take a long time; the caller must close it."""
        return Connections(lambda address: Connection.open(address, self.options, self.runtime))

    # --- methods of the core ---

    def retrying(self, attempt: Callable[[], T], timeout_s: float | None = None) -> T:
        """Return the result of an attempt, which is retried with backoff as long as its errors are retriable."""

        async def once() -> T:
            return attempt()

        return run(self.core.retrying(once, timeout_s))

    def mark_stale(self) -> None:
        """Mark the metadata as stale, so that it is refreshed before its next use."""
        self.core.mark_stale()

    def address(self, broker_id: int) -> Address:
        """Return the address of a broker."""
        return self.core.address(broker_id)

    def connection(self, broker_id: int) -> Connection:
        """Return the connection to a broker."""
        return run(self.core.connection(broker_id))

    def request_any(self, api: Api, body: dict[str, Any], *, at_most: int | None = None) -> dict[str, Any]:
        """Send a request to the brokers in turn until one responds."""
        return run(self.core.request_any(api, body, at_most=at_most))

    def refresh(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Request the cluster's metadata."""
        return run(self.core.refresh(topics))

    def topic(self, name: str) -> TopicView:
        """Return a topic's metadata; refresh it if it is stale, too old or missing."""
        return run(self.core.topic(name))

    def find_topic(self, name: str, timeout_s: float = 5.0) -> TopicView:
        """Return a topic's metadata; wait for a topic that was created only recently."""
        return run(self.core.find_topic(name, timeout_s))

    def partition(self, partition: TopicPartition) -> PartitionView:
        """Return a partition's metadata."""
        return run(self.core.partition(partition))

    def leader(self, partition: TopicPartition) -> int:
        """Return the broker id of a partition's leader."""
        leader = self.core.fresh_leader(partition)
        return run(self.core.leader(partition)) if leader is None else leader

    def at_controller(self, attempt: Callable[[Connection], T], timeout_s: float | None = None) -> T:
        """Return the result of an attempt at the controller; each retry looks up the current controller."""
        return run(self.core.at_controller(_awaitable(attempt), timeout_s))

    def at_coordinator(
        self, kind: CoordinatorKind, key: str, attempt: Callable[[Connection], T], timeout_s: float | None = None
    ) -> T:
        """Return the result of an attempt at a coordinator; each retry looks up the current coordinator."""
        return run(self.core.at_coordinator(kind, key, _awaitable(attempt), timeout_s))


def _awaitable(attempt: Callable[[Connection], T]) -> Callable[[Connection], Awaitable[T]]:
    async def once(connection: Connection) -> T:
        return attempt(connection)

    return once
