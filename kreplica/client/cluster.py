"""``Cluster``: where a client begins.  It knows brokers, leaders and coordinators, and tries again what may go well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.client_runtime import Surroundings, real_surroundings
from kreplica.client.connection import Connection
from kreplica.client.connections import Connections
from kreplica.client_core.addresses import Address, parse_addresses
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientClosed,
    ClientError,
    ConnectionFailed,
    GaveUp,
    LeaderUnknown,
    check,
)
from kreplica.client_core.metadata import ClusterView, CoordinatorKind, PartitionView, TopicView, parse_view
from kreplica.client_core.options import ClientOptions
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.runtime.pause import pause
from kreplica.runtime.shared import Shared
from kreplica.runtime.together import together
from kreplica.wire.messages import FIND_COORDINATOR, METADATA, Api

T = TypeVar("T")

COORDINATORS_FROM = 4
"""From this version on one FindCoordinator asks for several (KIP-699)."""


class Cluster:
    """A client's view of one cluster, and its connections; an asynchronous context manager, or ``close`` it.

    Nothing is asked before it is needed.  Whatever is asked by ``retrying`` and the methods that use it goes on until
    it succeeds, fails for good, or its time is over (``GaveUp``).  Producers, consumers and admins that share a cluster
    share what it knows; each has connections of its own where it waits long.

    :param bootstrap: brokers to begin with, ``"kafka-1:9092,kafka-2:9092"`` or pairs.
    :param surroundings: reactor, randomness, clock and network; the process's own unless given.
    :raise ValueError: ``bootstrap`` is malformed.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[tuple[str, int]],
        *,
        options: ClientOptions | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.options = options or ClientOptions()
        self.surroundings = surroundings or real_surroundings()
        self.view = ClusterView()
        self._bootstrap = parse_addresses(bootstrap)
        self._connections = self.new_connections()
        self._closed = False
        self._pauses: dict[Deferred[None], None] = {}
        self._failed_s: dict[Address, float] = {}
        self._doubts = 1
        self._doubts_answered = 0
        self._told_s = 0.0
        self._refreshing: tuple[frozenset[str], Shared[ClusterView]] | None = None
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    async def close(self) -> None:
        """Close the connections, and end what is under way: it fails with ``ClientClosed``."""
        self._closed = True
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

    # --- trying again ---

    async def retrying(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """What an attempt gives, after as many as it takes.

        After one that failed the cluster is asked anew how it looks, where the next one wants to know.

        :param timeout_s: of the whole, tries and waits; the options' ``operation_timeout_s`` unless given.  No try
            begins after that; one that is under way goes on until it has its answer, or is out of its own time.
        :raise GaveUp: the time is over.
        :raise ClientClosed: the client was closed meanwhile.
        :raise ClientError: what another attempt cannot mend.
        """
        options, reactor = self.options, self.surroundings.reactor
        whole_s = options.operation_timeout_s if timeout_s is None else timeout_s
        deadline_s, attempts = reactor.seconds() + whole_s, 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
                if self._closed:
                    raise ClientClosed(f"the client was closed: {error}") from error
                self.doubt()
                attempts += 1
                wait_s = backoff_s(self.surroundings.random, attempts, options.backoff_s, options.backoff_s_max)
                if reactor.seconds() + wait_s >= deadline_s:
                    text = f"nothing came of it in {whole_s:g} s and {attempts} tries: {error}"
                    raise GaveUp(text) from error
            await self._pause(wait_s)

    async def _pause(self, seconds: float) -> None:
        """Wait, and not beyond the time when the client is closed."""
        waiting = pause(self.surroundings.reactor, seconds)
        self._pauses[waiting] = None
        try:
            await waiting
        except CancelledError:
            if self._closed:
                raise ClientClosed("the client was closed") from None
            raise
        finally:
            del self._pauses[waiting]

    def doubt(self) -> None:
        """What is known of leaders may be wrong: whoever wants to know next asks the cluster."""
        self._doubts += 1

    @property
    def _stale(self) -> bool:
        return self._doubts_answered < self._doubts

    # --- connections ---

    def new_connections(self) -> Connections:
        """Connections for somebody who waits long on brokers; theirs to close."""
        return Connections(self.surroundings, self.options)

    def address(self, broker_id: int) -> Address:
        """Where a broker listens.

        :raise LeaderUnknown: the cluster does not say.
        """
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            self.doubt()
            raise LeaderUnknown(f"broker {broker_id} is not known to the cluster at the moment")
        return broker.address

    async def connection(self, broker_id: int) -> Connection:
        """The connection to a broker that all who use this cluster share.

        :raise ClientError: none comes about.
        """
        return await self._connections.to(self.address(broker_id))

    async def connection_to(self, address: Address) -> Connection:
        """The same to an address, as ``coordinator`` gives it.

        :raise ClientError: none comes about.
        """
        return await self._connections.to(address)

    async def request(
        self,
        connection: Connection,
        api: Api,
        body: dict[str, Any],
        *,
        at_most: int | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Ask one broker, in the highest version that both sides speak.

        :param at_most: the highest version that is wanted.
        :param timeout_s: how long the broker may take; the options' ``request_timeout_s`` unless given.
        :raise ClientError: no answer came.
        """
        patience_s = self.options.request_timeout_s if timeout_s is None else timeout_s
        return await connection.request(api, connection.version(api, at_most), body, timeout_s=patience_s)

    async def ask(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Ask any broker, once each until one answers.

        :raise ClientError: of the last one, where none does.
        """
        return await self.at_any(lambda one: self.request(one, api, body, at_most=at_most, timeout_s=timeout_s))

    async def at_any(self, attempt: Callable[[Connection], Awaitable[T]]) -> T:
        """What any broker gives: an attempt at each, until one goes well.

        :raise ClientError: of the last one, where none does.
        """
        last: ClientError = ConnectionFailed("no broker is known")
        for address in self._known_addresses():
            try:
                found = await attempt(await self._connections.to(address))
            except ClientError as error:
                self._failed_s[address] = self.surroundings.reactor.seconds()
                last = error
            else:
                self._failed_s.pop(address, None)
                return found
        raise last

    def _known_addresses(self) -> list[Address]:
        """Those with an open connection first, those that failed last, whoever failed longest ago before others."""
        brokers = [broker.address for broker in self.view.brokers.values()]
        addresses = list(dict.fromkeys([*brokers, *self._bootstrap]))
        self._failed_s = {address: at_s for address, at_s in self._failed_s.items() if address in addresses}
        self.surroundings.random.shuffle(addresses)
        rank = {address: self._connections.to_open(address) is None for address in addresses}
        return sorted(addresses, key=lambda address: (self._failed_s.get(address, float("-inf")), rank[address]))

    # --- what it looks like ---

    async def refresh(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Ask how the cluster looks; who asks the same at the same time shares the answer.

        :param topics: to know of besides those that are known; None: all that there are.
        :raise ClientError: nobody answers.
        """
        if topics is None:
            return await self._refresh(None)
        names = frozenset((*self.view.topics, *topics))
        under_way = self._refreshing
        if under_way is None or under_way[1].is_over or not names <= under_way[0]:
            under_way = self._refreshing = names, Shared(self._refresh(names))
        return await under_way[1].wait()

    async def _refresh(self, names: frozenset[str] | None) -> ClusterView:
        wanted = None if names is None else [{"name": name} for name in sorted(names)]
        doubts = self._doubts
        answer = await self.ask(METADATA, {"topics": wanted, "allow_auto_topic_creation": False})
        self.view = parse_view(answer, self.view, whole=names is None)
        self._doubts_answered, self._told_s = doubts, self.surroundings.reactor.seconds()
        return self.view

    async def topic(self, name: str) -> TopicView:
        """A topic, as it was last told; asks where that is doubtful, old, or not known.

        :raise BrokerRefused: there is none of that name, as far as the broker knows: it may be new.
        """
        found = self.known_topic(name)
        if found is None:
            await self.refresh((name,))
            found = self.view.topics.get(name)
        if found is None:
            self.doubt()
            raise BrokerRefused(self.view.problems.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
        return found

    def known_topic(self, name: str) -> TopicView | None:
        """A topic, where what is known of it is neither doubtful nor old."""
        if self._stale or self.surroundings.reactor.seconds() - self._told_s > self.options.metadata_age_s_max:
            return None
        return self.view.topics.get(name)

    async def find_topic(self, name: str, timeout_s: float = 5.0) -> TopicView:
        """A topic that is expected to be there; one that was made just now may take a moment to be known.

        :param timeout_s: how long to wait for it.
        :raise ClientError: it is not there, or nobody answers.
        """
        return await self.retrying(lambda: self.topic(name), timeout_s)

    async def partition(self, partition: TopicPartition) -> PartitionView:
        """A partition.

        :raise BrokerRefused: there is no such topic or partition.
        """
        found = (await self.topic(partition.topic)).partition(partition.partition)
        if found is None:
            self.doubt()
            raise BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
        return found

    async def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition.

        :raise LeaderUnknown: nobody does at the moment.
        """
        leader = (await self.partition(partition)).leader
        if leader == NO_LEADER or leader not in self.view.brokers:
            self.doubt()
            raise LeaderUnknown(f"nobody leads {partition} at the moment")
        return leader

    # --- who decides ---

    async def at_controller(self, attempt: Callable[[Connection], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Ask the controller, whoever that is by then."""

        async def once() -> T:
            return await attempt(await self.controller())

        return await self.retrying(once, timeout_s)

    async def controller(self) -> Connection:
        """The connection to the controller, as far as the cluster says who that is.

        :raise ClientError: it is not known, or not reached.
        """
        if self._stale:
            await self.refresh()
        return await self.connection(self.view.controller_id)

    async def at_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        attempt: Callable[[Connection], Awaitable[T]],
        timeout_s: float | None = None,
    ) -> T:
        """Ask the coordinator of a group or of a transactional id, whoever that is by then.

        :param attempt: is given the connection that all who use this cluster share.
        """

        async def once() -> T:
            address = await self.coordinator(kind, key)
            try:
                return await attempt(await self._connections.to(address))
            except ClientError:
                self.doubt_coordinator(kind, key)
                raise

        return await self.retrying(once, timeout_s)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> Address:
        """Where the coordinator of a group or of a transactional id listens; asks where that is not known.

        :raise ClientError: nobody tells.
        """
        found = (await self.coordinators(kind, (key,)))[key]
        if isinstance(found, ClientError):
            raise found
        return found

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, Address | ClientError]:
        """The same of several at once, each with where its coordinator listens, or why that is not known.

        :raise ClientError: nobody answers.
        """
        told: dict[str, Address | ClientError | None] = {key: self._coordinators.get((kind, key)) for key in keys}
        missing = [key for key, known in told.items() if known is None]
        if missing:
            found = await self.at_any(lambda connection: self._find_coordinators(connection, kind, missing))
            self._coordinators |= {(kind, key): each for key, each in found.items() if isinstance(each, Address)}
            told |= found
        return {key: _untold(kind) if each is None else each for key, each in told.items()}

    def doubt_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """What is known of a coordinator may be wrong: whoever wants to know next asks the cluster."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinators(
        self, connection: Connection, kind: CoordinatorKind, keys: list[str]
    ) -> dict[str, Address | ClientError]:
        if connection.version(FIND_COORDINATOR) >= COORDINATORS_FROM:
            answer = await self.request(connection, FIND_COORDINATOR, {"key_type": int(kind), "coordinator_keys": keys})
            rows = answer["coordinators"]
        else:
            bodies = [{"key_type": int(kind), "key": key} for key in keys]
            answers = await together([self.request(connection, FIND_COORDINATOR, body) for body in bodies])
            rows = [answer | {"key": key} for key, answer in zip(keys, answers, strict=True)]
        return {row["key"]: _coordinator(kind, row) for row in rows}


def _coordinator(kind: CoordinatorKind, row: dict[str, Any]) -> Address | ClientError:
    try:
        check(row, f"coordinator of {kind.name.lower()} {row['key']!r}")
    except ClientError as error:
        return error
    return Address(row["host"], row["port"])


def _untold(kind: CoordinatorKind) -> ClientError:
    return BrokerRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"coordinator of {kind.name.lower()}", "nothing was said")
