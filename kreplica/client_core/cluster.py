"""Routing, retries and metadata refresh of both clients.

``ClusterCore`` decides which broker receives a request, when metadata is refreshed and when a request is retried.  A
driver is a subclass that provides the clock, and delays, connections and exchanges as awaitables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from kreplica.client_core.addresses import Address, parse_addresses
from kreplica.client_core.coordinator_rows import coordinator_address, missing_in_response
from kreplica.client_core.errors import BrokerRefused, ClientClosed, ClientError, ConnectionFailed, LeaderUnknown
from kreplica.client_core.metadata import ClusterView, CoordinatorKind, PartitionView, TopicView, parse_view
from kreplica.client_core.negotiation import VersionRange
from kreplica.client_core.options import ClientOptions
from kreplica.client_core.retries import RetrySchedule
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.wire.messages import FIND_COORDINATOR, METADATA, Api

T = TypeVar("T")

SEVERAL_KEYS_FROM = 4
"""First version of FindCoordinator that accepts several keys (KIP-699)."""


class BrokerConnection(Protocol):
    """The part of a connection that the core uses."""

    @property
    def peer(self) -> str:
        """The broker's address, for error messages."""

    @property
    def versions(self) -> Mapping[int, VersionRange]:
        """API key -> lowest and highest version that the broker supports."""

    def version(self, api: Api, at_most: int | None = None) -> int:
        """Return the highest version of an API that both the client and the broker support.

        :raise UnsupportedVersion: there is no common version.
        """


ConnectionT = TypeVar("ConnectionT", bound=BrokerConnection)


class ClusterCore(ABC, Generic[ConnectionT]):
    """Metadata of one cluster and the routing of requests to its brokers.

    :param bootstrap: brokers to contact first: ``"kafka-1:9092,kafka-2:9092"`` or pairs of host and port.
    :param random: source of randomness for the order of brokers and the jitter of delays.
    :ivar view: the metadata that was received last.
    :raise ValueError: ``bootstrap`` is malformed.
    """

    def __init__(self, bootstrap: str | Iterable[tuple[str, int]], options: ClientOptions, random: Random) -> None:
        self.options = options
        self.view = ClusterView()
        self.is_closed = False
        self._random = random
        self._bootstrap = parse_addresses(bootstrap)
        self._failed_s: dict[Address, float] = {}
        self._invalidations = 1
        self._invalidations_handled = 0
        self._refreshed_s = 0.0
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    # --- provided by the driver ---

    @abstractmethod
    def now_s(self) -> float:
        """Return the monotonic time in seconds."""

    @abstractmethod
    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait.

        :raise ClientClosed: the client was closed in the meantime.
        """

    @abstractmethod
    async def gather(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines, concurrently if the driver can; return all results in order, or raise the first error."""

    @abstractmethod
    async def connection_to(self, address: Address) -> ConnectionT:
        """Return the shared connection to an address; open it if there is none.

        :raise ClientError: the connection could not be opened.
        """

    @abstractmethod
    def has_connection(self, address: Address) -> bool:
        """Return True if the shared connection to an address is open."""

    @abstractmethod
    async def exchange(
        self, connection: ConnectionT, api: Api, version: int, body: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Send a request and return the body of its response.

        :raise ClientError: no response was received.
        """

    # --- retries ---

    async def retrying(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Return the result of an attempt, which is retried with backoff as long as its errors are retriable.

        After a failure, the cluster's metadata is refreshed when it is next needed.

        :param timeout_s: time limit for all attempts and delays; by default, the option ``operation_timeout_s``.  No
            attempt starts later; an attempt in progress continues until its response or its own timeout.
        :raise GaveUp: the timeout has passed.
        :raise ClientClosed: the client was closed in the meantime.
        :raise ClientError: the error is final.
        """
        schedule = RetrySchedule(self.options, self._random, self.now_s(), timeout_s)
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
                if self.is_closed:
                    raise ClientClosed(f"the client was closed: {error}") from error
                self.mark_stale()
                delay_s = schedule.delay_s(error, self.now_s())
            await self.sleep(delay_s)

    def mark_stale(self) -> None:
        """Mark the metadata as stale, so that it is refreshed before its next use."""
        self._invalidations += 1

    @property
    def _is_stale(self) -> bool:
        return self._invalidations_handled < self._invalidations

    # --- requests ---

    def address(self, broker_id: int) -> Address:
        """Return the address of a broker.

        :raise LeaderUnknown: the metadata does not contain the broker.
        """
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            self.mark_stale()
            raise LeaderUnknown(f"broker {broker_id} is not in the cluster's metadata")
        return broker.address

    async def connection(self, broker_id: int) -> ConnectionT:
        """Return the shared connection to a broker.

        :raise ClientError: the connection could not be opened.
        """
        return await self.connection_to(self.address(broker_id))

    async def request(
        self,
        connection: ConnectionT,
        api: Api,
        body: dict[str, Any],
        *,
        at_most: int | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send a request to a broker in the highest version that both support, and return the response's body.

        :param at_most: highest version to use.
        :param timeout_s: time to wait for the response; by default, the option ``request_timeout_s``.
        :raise ClientError: no response was received.
        """
        limit_s = self.options.request_timeout_s if timeout_s is None else timeout_s
        return await self.exchange(connection, api, connection.version(api, at_most), body, limit_s)

    async def request_any(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request to the brokers in turn until one responds.

        :raise ClientError: no broker responded; the error is that of the last broker.
        """
        return await self.at_any(lambda one: self.request(one, api, body, at_most=at_most, timeout_s=timeout_s))

    async def at_any(self, attempt: Callable[[ConnectionT], Awaitable[T]]) -> T:
        """Attempt a request at the brokers in turn until an attempt succeeds; return its result.

        :raise ClientError: all attempts failed; the error is that of the last attempt.
        """
        last: ClientError = ConnectionFailed("no broker is known")
        for address in self._known_addresses():
            try:
                found = await attempt(await self.connection_to(address))
            except ClientError as error:
                self._failed_s[address] = self.now_s()
                last = error
            else:
                self._failed_s.pop(address, None)
                return found
        raise last

    def _known_addresses(self) -> list[Address]:
        """Return all addresses in the order in which to try them: without failures first, latest failure last.

        Among the addresses without failures, connected ones come first.
        """
        brokers = [broker.address for broker in self.view.brokers.values()]
        addresses = list(dict.fromkeys([*brokers, *self._bootstrap]))
        self._failed_s = {address: at_s for address, at_s in self._failed_s.items() if address in addresses}
        self._random.shuffle(addresses)
        rank = {address: not self.has_connection(address) for address in addresses}
        return sorted(addresses, key=lambda address: (self._failed_s.get(address, float("-inf")), rank[address]))

    # --- metadata ---

    async def refresh(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Request the cluster's metadata.

        :param topics: topics to include in addition to those in ``view``; None includes all topics of the cluster.
        :raise ClientError: no broker responded.
        """
        names = None if topics is None else frozenset((*self.view.topics, *topics))
        return await self._request_metadata(names)

    async def _request_metadata(self, names: frozenset[str] | None) -> ClusterView:
        wanted = None if names is None else [{"name": name} for name in sorted(names)]
        invalidations = self._invalidations
        response = await self.request_any(METADATA, {"topics": wanted, "allow_auto_topic_creation": False})
        self.view = parse_view(response, self.view, is_complete=names is None)
        self._invalidations_handled, self._refreshed_s = invalidations, self.now_s()
        return self.view

    async def topic(self, name: str) -> TopicView:
        """Return a topic's metadata; refresh it if it is stale, too old or missing.

        :raise BrokerRefused: the broker does not know the topic, which may have been created only recently.
        """
        found = self.known_topic(name)
        if found is None:
            await self.refresh((name,))
            found = self.view.topics.get(name)
        if found is None:
            self.mark_stale()
            raise BrokerRefused(self.view.problems.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
        return found

    def known_topic(self, name: str) -> TopicView | None:
        """Return a topic's metadata if it is neither stale nor older than ``metadata_age_s_max``."""
        if self._is_stale or self.now_s() - self._refreshed_s > self.options.metadata_age_s_max:
            return None
        return self.view.topics.get(name)

    async def find_topic(self, name: str, timeout_s: float = 5.0) -> TopicView:
        """Return a topic's metadata; wait for a topic that was created only recently.

        :param timeout_s: time to wait for the topic.
        :raise ClientError: the topic does not exist, or no broker responded.
        """
        return await self.retrying(lambda: self.topic(name), timeout_s)

    async def partition(self, partition: TopicPartition) -> PartitionView:
        """Return a partition's metadata.

        :raise BrokerRefused: there is no such topic or partition.
        """
        found = (await self.topic(partition.topic)).partition(partition.partition)
        if found is None:
            self.mark_stale()
            raise BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
        return found

    async def leader(self, partition: TopicPartition) -> int:
        """Return the broker id of a partition's leader.

        :raise LeaderUnknown: the partition currently has no leader.
        """
        leader = (await self.partition(partition)).leader
        if leader == NO_LEADER or leader not in self.view.brokers:
            self.mark_stale()
            raise LeaderUnknown(f"{partition} currently has no leader")
        return leader

    def known_leader(self, partition: TopicPartition) -> int | None:
        """Return a partition's leader from the metadata, even if that is stale; None if there is none."""
        topic = self.view.topics.get(partition.topic)
        found = None if topic is None else topic.partition(partition.partition)
        if found is None or found.leader == NO_LEADER or found.leader not in self.view.brokers:
            return None
        return found.leader

    def fresh_leader(self, partition: TopicPartition) -> int | None:
        """Return a partition's leader; None if there is none or the metadata is stale or too old."""
        if self._is_stale or self.now_s() - self._refreshed_s > self.options.metadata_age_s_max:
            return None
        return self.known_leader(partition)

    # --- controller and coordinators ---

    async def at_controller(self, attempt: Callable[[ConnectionT], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Return the result of an attempt at the controller; each retry looks up the current controller."""

        async def once() -> T:
            return await attempt(await self.controller())

        return await self.retrying(once, timeout_s)

    async def controller(self) -> ConnectionT:
        """Return the shared connection to the controller.

        :raise ClientError: the controller is unknown or unreachable.
        """
        if self._is_stale:
            await self.refresh()
        return await self.connection(self.view.controller_id)

    async def at_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        attempt: Callable[[ConnectionT], Awaitable[T]],
        timeout_s: float | None = None,
    ) -> T:
        """Return the result of an attempt at a coordinator; each retry looks up the current coordinator.

        :param key: the group id or the transactional id.
        """

        async def once() -> T:
            address = await self.coordinator(kind, key)
            try:
                return await attempt(await self.connection_to(address))
            except ClientError:
                self.forget_coordinator(kind, key)
                raise

        return await self.retrying(once, timeout_s)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> Address:
        """Return the address of the coordinator of a group or a transactional id.

        :raise ClientError: no broker knows the coordinator.
        """
        found = (await self.coordinators(kind, (key,)))[key]
        if isinstance(found, ClientError):
            raise found
        return found

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, Address | ClientError]:
        """Return the coordinator's address or an error for each of several groups or transactional ids.

        :raise ClientError: no broker responded.
        """
        found: dict[str, Address | ClientError | None] = {key: self._coordinators.get((kind, key)) for key in keys}
        missing = [key for key, known in found.items() if known is None]
        if missing:
            new = await self.at_any(lambda connection: self._find_coordinators(connection, kind, missing))
            self._coordinators |= {(kind, key): each for key, each in new.items() if isinstance(each, Address)}
            found |= new
        return {key: missing_in_response(kind) if each is None else each for key, each in found.items()}

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Forget a coordinator's address, so that it is looked up before its next use."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinators(
        self, connection: ConnectionT, kind: CoordinatorKind, keys: list[str]
    ) -> dict[str, Address | ClientError]:
        if connection.version(FIND_COORDINATOR) >= SEVERAL_KEYS_FROM:
            body: dict[str, Any] = {"key_type": int(kind), "coordinator_keys": keys}
            response = await self.request(connection, FIND_COORDINATOR, body)
            rows = response["coordinators"]
        else:
            bodies = [{"key_type": int(kind), "key": key} for key in keys]
            responses = await self.gather([self.request(connection, FIND_COORDINATOR, body) for body in bodies])
            rows = [response | {"key": key} for key, response in zip(keys, responses, strict=True)]
        return {row["key"]: coordinator_address(kind, row) for row in rows}
