"""Routes requests to the controller, leaders, coordinators and single brokers, with retries.

A request for several items is sent to all responsible brokers concurrently.  Each item has its own outcome; only items
with a retriable error are requested again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from kreplica.client_core.addresses import Address
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.cluster import BrokerConnection, ClusterCore
from kreplica.client_core.errors import BrokerRefused, ClientError, GaveUp, LeaderUnknown, UnsupportedVersion, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.wire.messages import Api

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Results: TypeAlias = Mapping[K, V | ClientError]
"""Results or errors of some items from one attempt."""

SendRequest: TypeAlias = Callable[[BrokerConnection, list[K]], Awaitable[Mapping[K, V | ClientError]]]
"""Sends a request for some items to one broker."""

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Error codes for a topic or partition that the broker does not know."""
UNKNOWN_RETRIED_S = 5.0
"""Time for which a request for an unknown topic is retried, because brokers may not know a new topic yet."""

CONCURRENT_REQUESTS_MAX = 100
"""Maximum number of concurrent requests to one broker, below the limit of a connection."""

SERVER_TIMEOUT_MS = 20_000
"""Timeout in requests: time after which a broker responds even if the operation is still in progress."""


class RequestRouter:
    """Base class of the administration methods, which are grouped by subject.

    :param cluster: the cluster's client core; the caller must close it.
    """

    def __init__(self, cluster: ClusterCore[Any]) -> None:
        self._cluster = cluster

    async def settle(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Results[K, V]]],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[K, V]:
        """Retry until each item has an outcome or the timeout has passed.

        :param attempt: requests the remaining items; if it raises an error, all of them have that error.
        :param final: error codes that are final outcomes although they are retriable.
        """
        cluster = self._cluster
        remaining = dict.fromkeys(items)
        order, outcomes, errors = list(remaining), dict[K, V | ClientError](), dict[K, ClientError]()
        started_s = cluster.now_s()

        def is_final(outcome: V | ClientError) -> bool:
            if not isinstance(outcome, ClientError) or not outcome.retriable:
                return True
            if not isinstance(outcome, BrokerRefused):
                return False
            is_late = cluster.now_s() - started_s >= UNKNOWN_RETRIED_S
            return outcome.code in final or (outcome.code in UNKNOWN and is_late)

        async def once() -> None:
            if not remaining:
                return
            results = await attempt(list(remaining))
            errors.clear()
            for item in list(remaining):
                outcome = results[item] if item in results else _missing_in_response(item)
                if is_final(outcome):
                    outcomes[item] = outcome
                    del remaining[item]
                elif isinstance(outcome, ClientError):
                    errors[item] = outcome
            for error in errors.values():
                raise error

        try:
            await cluster.retrying(once, timeout_s)
        except ClientError as error:
            outcomes |= {item: _final_error(error, errors.get(item)) for item in remaining}
        return Outcomes({item: outcomes[item] for item in order})

    async def at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        send: SendRequest[TopicPartition, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[TopicPartition, V]:
        """Send requests to the leaders of partitions."""

        async def attempt(remaining: list[TopicPartition]) -> Results[TopicPartition, V]:
            leaders = await self._leaders(remaining)
            return await self._send_each(leaders, self._cluster.connection, send)

        return await self.settle(partitions, attempt, timeout_s, final=final)

    async def at_coordinators(
        self,
        kind: CoordinatorKind,
        keys: Iterable[str],
        send: SendRequest[str, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[str, V]:
        """Send requests to the coordinators of groups or transactional ids."""
        cluster = self._cluster

        async def attempt(remaining: list[str]) -> Results[str, V]:
            results = await self._send_each(await cluster.coordinators(kind, remaining), cluster.connection_to, send)
            for key, outcome in results.items():
                if isinstance(outcome, ClientError) and outcome.retriable:
                    cluster.forget_coordinator(kind, key)
            return results

        return await self.settle(keys, attempt, timeout_s, final=final)

    async def at_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        items: Iterable[K],
        send: SendRequest[K, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[K, V]:
        """Send a request for several items to the coordinator of one group or transactional id."""
        cluster = self._cluster

        async def attempt(remaining: list[K]) -> Results[K, V]:
            address = await cluster.coordinator(kind, key)
            results = await self._send_each(dict.fromkeys(remaining, address), cluster.connection_to, send)
            if any(isinstance(outcome, ClientError) and outcome.retriable for outcome in results.values()):
                cluster.forget_coordinator(kind, key)
            return results

        return await self.settle(items, attempt, timeout_s, final=final)

    async def at_brokers(
        self,
        brokers: Iterable[int] | None,
        send: Callable[[BrokerConnection], Awaitable[V]],
        timeout_s: float | None = None,
    ) -> Outcomes[int, V]:
        """Send a request to each of several brokers.

        :param brokers: ids of brokers; None means all live brokers.
        """

        async def send_to_broker(connection: BrokerConnection, ids: list[int]) -> Results[int, V]:
            return dict.fromkeys(ids, await send(connection))

        async def attempt(remaining: list[int]) -> Results[int, V]:
            if any(broker_id not in self._cluster.view.brokers for broker_id in remaining):
                await self._cluster.refresh()
            return await self._send_each({each: each for each in remaining}, self._cluster.connection, send_to_broker)

        if brokers is None:
            brokers = sorted((await self._cluster.retrying(self._cluster.refresh, timeout_s)).brokers)
        return await self.settle(brokers, attempt, timeout_s)

    async def at_all_brokers(
        self, send: Callable[[BrokerConnection], Awaitable[V]], timeout_s: float | None = None
    ) -> Mapping[int, V]:
        """Send a request to all live brokers; if one fails, repeat all, as other brokers may have taken over its work.

        :raise ClientError: a live broker did not respond.
        """
        cluster = self._cluster

        async def send_to_broker(connection: BrokerConnection, ids: list[int]) -> Results[int, V]:
            return dict.fromkeys(ids, await send(connection))

        async def once() -> Mapping[int, V]:
            brokers = {each: each for each in sorted((await cluster.refresh()).brokers)}
            return Outcomes(await self._send_each(brokers, cluster.connection, send_to_broker)).raise_first()

        return await cluster.retrying(once, timeout_s)

    async def at_controller(
        self,
        items: Iterable[K],
        send: SendRequest[K, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = UNKNOWN,
        reconcile: Callable[[K, BrokerRefused], Awaitable[V | ClientError]] | None = None,
    ) -> Outcomes[K, V]:
        """Send requests to the controller; by default, the error codes in ``UNKNOWN`` are final.

        :param reconcile: returns the outcome of an item that was rejected after an attempt without a response, which
            may have been executed.
        """
        possibly_applied: set[K] = set()

        async def attempt(remaining: list[K]) -> Results[K, V]:
            connection = await self._cluster.controller()
            before = frozenset(possibly_applied)
            possibly_applied.update(remaining)
            results = dict(await send(connection, remaining))
            for item, error in results.items():
                if not isinstance(error, BrokerRefused) or error.code is ErrorCode.REQUEST_TIMED_OUT:
                    continue
                if item not in before:
                    possibly_applied.discard(item)
                elif reconcile is not None:
                    results[item] = await reconcile(item, error)
            return results

        return await self.settle(items, attempt, timeout_s, final=final)

    async def _leaders(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
        cluster = self._cluster
        topics = sorted({each.topic for each in partitions})
        if any(cluster.known_topic(topic) is None for topic in topics):
            await cluster.refresh(topics)
        return {each: _leader(cluster, each) for each in partitions}

    async def _send_each(
        self, targets: Mapping[K, Any], connect: Callable[[Any], Awaitable[BrokerConnection]], send: SendRequest[K, V]
    ) -> dict[K, V | ClientError]:
        """Send one request per broker, concurrently; if a request fails, all of its items have that error."""
        results: dict[K, V | ClientError] = {}
        shares: dict[int | Address, list[K]] = {}
        for item, target in targets.items():
            if isinstance(target, ClientError):
                results[item] = target
            else:
                shares.setdefault(target, []).append(item)

        async def send_one(target: int | Address, share: list[K]) -> Results[K, V]:
            try:
                return await send(await connect(target), share)
            except ClientError as error:
                return dict.fromkeys(share, error)

        for outcomes in await self._cluster.gather([send_one(target, share) for target, share in shares.items()]):
            results |= outcomes
        return results

    async def one_by_one(self, items: list[K], send: Callable[[K], Awaitable[V]]) -> dict[K, V | ClientError]:
        """Send one request per item, at most ``CONCURRENT_REQUESTS_MAX`` concurrently."""

        async def send_one(item: K) -> V | ClientError:
            try:
                return await send(item)
            except ClientError as error:
                return error

        results: dict[K, V | ClientError] = {}
        for begin in range(0, len(items), CONCURRENT_REQUESTS_MAX):
            share = items[begin : begin + CONCURRENT_REQUESTS_MAX]
            results |= zip(share, await self._cluster.gather([send_one(item) for item in share]), strict=True)
        return results


def outcome(row: Mapping[str, Any], what: str) -> BrokerRefused | None:
    """Return the error in a row of a response, or None."""
    try:
        check(row, what)
    except BrokerRefused as error:
        return error
    return None


def require_version(connection: BrokerConnection, api: Api, version: int, what: str) -> None:
    """Raise an error unless a broker supports a feature.

    :param version: first version of the API that has the feature.
    :raise UnsupportedVersion: the broker only supports lower versions.
    """
    if connection.version(api) < version:
        raise UnsupportedVersion(f"{connection.peer} does not support {what} in {api.name}")


def supports(connection: BrokerConnection, api: Api) -> bool:
    """Return True if a broker supports an API in a known version."""
    try:
        connection.version(api)
    except UnsupportedVersion:
        return False
    return True


def _leader(cluster: ClusterCore[Any], partition: TopicPartition) -> int | ClientError:
    topic = cluster.view.topics.get(partition.topic)
    if topic is None:
        code = cluster.view.problems.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return BrokerRefused(code, f"topic {partition.topic}")
    view = topic.partition(partition.partition)
    if view is None:
        return BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
    if view.leader == NO_LEADER or view.leader not in cluster.view.brokers:
        return LeaderUnknown(f"{partition} currently has no leader")
    return view.leader


def _final_error(error: ClientError, item_error: ClientError | None) -> ClientError:
    """Return the error of an item that has no outcome after the last attempt."""
    if not isinstance(error, GaveUp) or item_error is None:
        return error
    given_up = GaveUp(str(error))
    given_up.__cause__ = item_error
    return given_up


def _missing_in_response(item: object) -> ClientError:
    return BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(item), "the response does not contain it")
