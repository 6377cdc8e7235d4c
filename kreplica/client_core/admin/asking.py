"""Asking whoever can answer: the controller, leaders, coordinators, single brokers; what may go well is tried again.

A question over several items is put to all who are concerned at the same time, and each item has an outcome of its own:
an item whose error another try may mend is asked for again, without those that have their answer.
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

Told: TypeAlias = Mapping[K, V | ClientError]
"""What one question brought to light of some items."""

Ask: TypeAlias = Callable[[BrokerConnection, list[K]], Awaitable[Mapping[K, V | ClientError]]]
"""Asks one broker about some items."""

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
UNKNOWN_PATIENCE_S = 5.0
"""A topic that was made just now may not be known to every broker yet: for so long it is asked for again."""

AT_ONCE = 100
"""So many requests go to one broker before the first is answered; connections take more, and others want some."""

SERVER_TIMEOUT_MS = 20_000
"""How long a broker may wait for what it was asked to do, before it says that it goes on."""


class Subject:
    """What the methods about one subject stand on.

    :param cluster: to administer; shared with whoever else uses it, who closes it.
    """

    def __init__(self, cluster: ClusterCore[Any]) -> None:
        self._cluster = cluster

    async def settle(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Told[K, V]]],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[K, V]:
        """Ask until each item has its outcome, or the time is over.

        :param attempt: asks about those that have none yet; what it raises is the error of all of them.
        :param final: codes that are outcomes, though another try might bring another one.
        """
        cluster = self._cluster
        left = dict.fromkeys(items)
        order, outcomes, errors = list(left), dict[K, V | ClientError](), dict[K, ClientError]()
        began_s = cluster.now_s()

        def is_over(outcome: V | ClientError) -> bool:
            if not isinstance(outcome, ClientError) or not outcome.retriable:
                return True
            if not isinstance(outcome, BrokerRefused):
                return False
            impatient = cluster.now_s() - began_s >= UNKNOWN_PATIENCE_S
            return outcome.code in final or (outcome.code in UNKNOWN and impatient)

        async def once() -> None:
            if not left:
                return
            told = await attempt(list(left))
            errors.clear()
            for item in list(left):
                outcome = told[item] if item in told else _unanswered(item)
                if is_over(outcome):
                    outcomes[item] = outcome
                    del left[item]
                elif isinstance(outcome, ClientError):
                    errors[item] = outcome
            for error in errors.values():
                raise error

        try:
            await cluster.retrying(once, timeout_s)
        except ClientError as error:
            outcomes |= {item: _given_up(error, errors.get(item)) for item in left}
        return Outcomes({item: outcomes[item] for item in order})

    async def at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Ask[TopicPartition, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[TopicPartition, V]:
        """Ask the leader of each partition."""

        async def attempt(left: list[TopicPartition]) -> Told[TopicPartition, V]:
            leaders = await self._leaders(left)
            return await self._ask_each(leaders, self._cluster.connection, ask)

        return await self.settle(partitions, attempt, timeout_s, final=final)

    async def at_coordinators(
        self,
        kind: CoordinatorKind,
        keys: Iterable[str],
        ask: Ask[str, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[str, V]:
        """Ask the coordinator of each group or transactional id."""
        cluster = self._cluster

        async def attempt(left: list[str]) -> Told[str, V]:
            told = await self._ask_each(await cluster.coordinators(kind, left), cluster.connection_to, ask)
            for key, outcome in told.items():
                if isinstance(outcome, ClientError) and outcome.retriable:
                    cluster.doubt_coordinator(kind, key)
            return told

        return await self.settle(keys, attempt, timeout_s, final=final)

    async def at_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        items: Iterable[K],
        ask: Ask[K, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> Outcomes[K, V]:
        """Ask the coordinator of one group or transactional id about several items."""
        cluster = self._cluster

        async def attempt(left: list[K]) -> Told[K, V]:
            where = await cluster.coordinator(kind, key)
            told = await self._ask_each(dict.fromkeys(left, where), cluster.connection_to, ask)
            if any(isinstance(outcome, ClientError) and outcome.retriable for outcome in told.values()):
                cluster.doubt_coordinator(kind, key)
            return told

        return await self.settle(items, attempt, timeout_s, final=final)

    async def at_brokers(
        self,
        brokers: Iterable[int] | None,
        ask: Callable[[BrokerConnection], Awaitable[V]],
        timeout_s: float | None = None,
    ) -> Outcomes[int, V]:
        """Ask brokers themselves.

        :param brokers: None: all that live.
        """

        async def one(connection: BrokerConnection, ids: list[int]) -> Told[int, V]:
            return dict.fromkeys(ids, await ask(connection))

        async def attempt(left: list[int]) -> Told[int, V]:
            if any(broker_id not in self._cluster.view.brokers for broker_id in left):
                await self._cluster.refresh()
            return await self._ask_each({each: each for each in left}, self._cluster.connection, one)

        if brokers is None:
            brokers = sorted((await self._cluster.retrying(self._cluster.refresh, timeout_s)).brokers)
        return await self.settle(brokers, attempt, timeout_s)

    async def everywhere(
        self, ask: Callable[[BrokerConnection], Awaitable[V]], timeout_s: float | None = None
    ) -> Mapping[int, V]:
        """Ask all brokers that live, and all of them again where one does not answer: what it had, others take over.

        :raise ClientError: one does not answer, and does not go either.
        """
        cluster = self._cluster

        async def one(connection: BrokerConnection, ids: list[int]) -> Told[int, V]:
            return dict.fromkeys(ids, await ask(connection))

        async def once() -> Mapping[int, V]:
            brokers = {each: each for each in sorted((await cluster.refresh()).brokers)}
            return Outcomes(await self._ask_each(brokers, cluster.connection, one)).raise_first()

        return await cluster.retrying(once, timeout_s)

    async def at_controller(
        self,
        items: Iterable[K],
        ask: Ask[K, V],
        timeout_s: float | None = None,
        *,
        final: frozenset[ErrorCode] = UNKNOWN,
        mend: Callable[[K, BrokerRefused], Awaitable[V | ClientError]] | None = None,
    ) -> Outcomes[K, V]:
        """Ask the controller; it knows what there is, so what is unknown to it is not there.

        :param mend: says what an item's refusal means where an earlier try, whose answer was lost, may have gone well.
        """
        doubtful: set[K] = set()

        async def attempt(left: list[K]) -> Told[K, V]:
            connection = await self._cluster.controller()
            before = frozenset(doubtful)
            doubtful.update(left)
            told = dict(await ask(connection, left))
            for item, error in told.items():
                if not isinstance(error, BrokerRefused) or error.code is ErrorCode.REQUEST_TIMED_OUT:
                    continue
                if item not in before:
                    doubtful.discard(item)
                elif mend is not None:
                    told[item] = await mend(item, error)
            return told

        return await self.settle(items, attempt, timeout_s, final=final)

    async def _leaders(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
        cluster = self._cluster
        topics = sorted({each.topic for each in partitions})
        if any(cluster.known_topic(topic) is None for topic in topics):
            await cluster.refresh(topics)
        return {each: _leader(cluster, each) for each in partitions}

    async def _ask_each(
        self, whom: Mapping[K, Any], connect: Callable[[Any], Awaitable[BrokerConnection]], ask: Ask[K, V]
    ) -> dict[K, V | ClientError]:
        """Ask all at the same time, each about its items; where one cannot be asked, its items have that error."""
        told: dict[K, V | ClientError] = {}
        shares: dict[int | Address, list[K]] = {}
        for item, where in whom.items():
            if isinstance(where, ClientError):
                told[item] = where
            else:
                shares.setdefault(where, []).append(item)

        async def one(where: int | Address, share: list[K]) -> Told[K, V]:
            try:
                return await ask(await connect(where), share)
            except ClientError as error:
                return dict.fromkeys(share, error)

        for found in await self._cluster.gather([one(where, share) for where, share in shares.items()]):
            told |= found
        return told

    async def one_by_one(self, items: list[K], ask: Callable[[K], Awaitable[V]]) -> dict[K, V | ClientError]:
        """Ask about each item apart, where no request takes several; ``AT_ONCE`` are under way at a time."""

        async def one(item: K) -> V | ClientError:
            try:
                return await ask(item)
            except ClientError as error:
                return error

        told: dict[K, V | ClientError] = {}
        for begin in range(0, len(items), AT_ONCE):
            share = items[begin : begin + AT_ONCE]
            told |= zip(share, await self._cluster.gather([one(item) for item in share]), strict=True)
        return told


def outcome(row: Mapping[str, Any], what: str) -> BrokerRefused | None:
    """The error that an answer, or one part of it, carries; None where all is well."""
    try:
        check(row, what)
    except BrokerRefused as error:
        return error
    return None


def need(connection: BrokerConnection, api: Api, version: int, what: str) -> None:
    """Make sure that a broker understands something.

    :param version: of the API, the first that has it.
    :raise UnsupportedVersion: the broker's is older.
    """
    if connection.version(api) < version:
        raise UnsupportedVersion(f"{connection.peer} has {api.name} without {what}")


def has(connection: BrokerConnection, api: Api) -> bool:
    """Whether a broker has an API in a version that is known here."""
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


def _given_up(error: ClientError, of_item: ClientError | None) -> ClientError:
    """What an item is told when its question ended: the time is over, or no answer can come."""
    if not isinstance(error, GaveUp) or of_item is None:
        return error
    given_up = GaveUp(str(error))
    given_up.__cause__ = of_item
    return given_up


def _unanswered(item: object) -> ClientError:
    return BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(item), "the answer does not tell of it")
