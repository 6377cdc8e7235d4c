"""Routes requests to the controller, leaders, coordinators and single brokers, with retries.

A request about several items goes to all responsible brokers concurrently.  Each item has its own outcome; only items
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
"""Sends a request about some items to one broker."""

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Error codes for a topic or partition that the broker does not know."""
UNKNOWN_RETRIED_S = 5.0
"""Time for which an unknown topic is retried, because brokers may not know a new topic yet."""

CONCURRENT_REQUESTS_MAX = 100
"""Maximum number of concurrent requests to one broker, below the limit of a connection."""

SERVER_TIMEOUT_MS = 20_000
"""Time after which a broker responds although its work continues."""


class RequestRouter:
    """Base of the methods about one subject.

    :param cluster: the cluster's client core; its owner closes it.
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
        """Repeat attempts until each item has an outcome, or the timeout has passed.

        :param attempt: requests the items without an outcome; an exception is the error of all of them.
        :param final: error codes that are outcomes although they are retriable.
        """
        cluster = self._cluster
        left = dict.fromkeys(items)
        order, outcomes, errors = list(left), dict[K, V | ClientError](), dict[K, ClientError]()
        started_s = cluster.now_s()

        def is_final(outcome: V | ClientError) -> bool:
            if not isinstance(outcome, ClientError) or not outcome.retriable:
                return True
            if not isinstance(outcome, BrokerRefused):
                return False
            is_late = cluster.now_s() - started_s >= UNKNOWN_RETRIED_S
            return outcome.code in final or (outcome.code in UNKNOWN and is_late)

        async def once() -> None:
            if not left:
                return
            results = await attempt(list(left))
            errors.clear()
            for item in list(left):
                outcome = results[item] if item in results else _missing_in_response(item)
                if is_final(outcome):
                    outcomes[item] = outcome
                    del left[item]
                elif isinstance(outcome, ClientError):
                    errors[item] = outcome
            for error in errors.values():
                raise error

        try:
            await cluster.retrying(once, timeout_s)
        except ClientError as error:
            outcomes |= {item: _final_error(error, errors.get(item)) for item in left}
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

        async def attempt(left: list[TopicPartition]) -> Results[TopicPartition, V]:
            leaders = await self._leaders(left)
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

        async def attempt(left: list[str]) -> Results[str, V]:
            results = await self._send_each(await cluster.coordinators(kind, left), cluster.connection_to, send)
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
        """Send a request about several items to the coordinator of one group or transactional id."""
        cluster = self._cluster

        async def attempt(left: list[K]) -> Results[K, V]:
            address = await cluster.coordinator(kind, key)
            results = await self._send_each(dict.fromkeys(left, address), cluster.connection_to, send)
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

        :param brokers: None: all live brokers.
        """

        async def one(connection: BrokerConnection, ids: list[int]) -> Results[int, V]:
            return dict.fromkeys(ids, await send(connection))

        async def attempt(left: list[int]) -> Results[int, V]:
            if any(broker_id not in self._cluster.view.brokers for broker_id in left):
                await self._cluster.refresh()
            return await self._send_each({each: each for each in left}, self._cluster.connection, one)

        if brokers is None:
            brokers = sorted((await self._cluster.retrying(self._cluster.refresh, timeout_s)).brokers)
        return await self.settle(brokers, attempt, timeout_s)

    async def at_all_brokers(
        self, send: Callable[[BrokerConnection], Awaitable[V]], timeout_s: float | None = None
    ) -> Mapping[int, V]:
        """Send a request to all live brokers; if one fails, repeat all: other brokers may have taken over its work.

        :raise ClientError: a live broker does not respond.
        """
        cluster = self._cluster

        async def one(connection: BrokerConnection, ids: list[int]) -> Results[int, V]:
            return dict.fromkeys(ids, await send(connection))

        async def once() -> Mapping[int, V]:
            brokers = {each: each for each in sorted((await cluster.refresh()).brokers)}
            return Outcomes(await self._send_each(brokers, cluster.connection, one)).raise_first()

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
        """Send requests to the controller; by default the error codes in ``UNKNOWN`` are final.

        :param reconcile: returns the outcome of an item that is rejected after an earlier attempt without a response.
        """
        maybe_done: set[K] = set()

        async def attempt(left: list[K]) -> Results[K, V]:
            connection = await self._cluster.controller()
            before = frozenset(maybe_done)
            maybe_done.update(left)
            results = dict(await send(connection, left))
            for item, error in results.items():
                if not isinstance(error, BrokerRefused) or error.code is ErrorCode.REQUEST_TIMED_OUT:
                    continue
                if item not in before:
                    maybe_done.discard(item)
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
        """Send one request per broker, concurrently; the error of a request is the error of all its items."""
        results: dict[K, V | ClientError] = {}
        shares: dict[int | Address, list[K]] = {}
        for item, target in targets.items():
            if isinstance(target, ClientError):
                results[item] = target
            else:
                shares.setdefault(target, []).append(item)

        async def one(target: int | Address, share: list[K]) -> Results[K, V]:
            try:
                return await send(await connect(target), share)
            except ClientError as error:
                return dict.fromkeys(share, error)

        for found in await self._cluster.gather([one(target, share) for target, share in shares.items()]):
            results |= found
        return results

    async def one_by_one(self, items: list[K], send: Callable[[K], Awaitable[V]]) -> dict[K, V | ClientError]:
        """Send one request per item, at most ``CONCURRENT_REQUESTS_MAX`` concurrently."""

        async def one(item: K) -> V | ClientError:
            try:
                return await send(item)
            except ClientError as error:
                return error

        results: dict[K, V | ClientError] = {}
        for begin in range(0, len(items), CONCURRENT_REQUESTS_MAX):
            share = items[begin : begin + CONCURRENT_REQUESTS_MAX]
            results |= zip(share, await self._cluster.gather([one(item) for item in share]), strict=True)
        return results


def outcome(row: Mapping[str, Any], what: str) -> BrokerRefused | None:
    """Return the error of a response's row, or None."""
    try:
        check(row, what)
    except BrokerRefused as error:
        return error
    return None


def require_version(connection: BrokerConnection, api: Api, version: int, what: str) -> None:
    """Check that a broker supports a feature.

    :param version: first version of the API that has it.
    :raise UnsupportedVersion: the broker's version is lower.
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
        return LeaderUnknown(f"{partition} has no leader at the moment")
    return view.leader


def _final_error(error: ClientError, of_item: ClientError | None) -> ClientError:
    """Return the error of an item that has no outcome after the last attempt."""
    if not isinstance(error, GaveUp) or of_item is None:
        return error
    given_up = GaveUp(str(error))
    given_up.__cause__ = of_item
    return given_up


def _missing_in_response(item: object) -> ClientError:
    return BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(item), "the response does not contain it")
