"""``Cluster``: where a client begins.  It knows brokers, leaders and coordinators, and tries again what may go well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from kreplica.blocking.blocking_runtime import Surroundings, real_surroundings
from kreplica.blocking.connection import Connection
from kreplica.blocking.connections import Connections
from kreplica.blocking.patience import Patience
from kreplica.client_core.addresses import Address, parse_addresses
from kreplica.client_core.errors import BrokerRefused, ClientError, ConnectionFailed, LeaderUnknown, check
from kreplica.client_core.metadata import ClusterView, CoordinatorKind, PartitionView, TopicView, parse_view
from kreplica.client_core.options import ClientOptions
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.wire.messages import FIND_COORDINATOR, METADATA, Api

T = TypeVar("T")


class Cluster:
    """A client's view of one cluster, and its connections; use it as a context manager, or ``close`` it.

    Nothing is asked before it is needed.  Whatever is asked by ``retrying`` and the methods that use it goes on until
    it succeeds, fails for good, or its time is over (``GaveUp``).

    :param bootstrap: brokers to begin with, ``"kafka-1:9092,kafka-2:9092"`` or pairs.
    :raise ValueError: that is malformed.
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
        self._failed: dict[Address, float] = {}
        self._stale = True
        self._told_s = 0.0
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- trying again ---

    def patience(self, timeout_s: float | None = None) -> Patience:
        """For one operation.

        :param timeout_s: the options' unless given.
        """
        options = self.options
        whole_s = options.operation_timeout_s if timeout_s is None else timeout_s
        return Patience(self.surroundings, whole_s, options.backoff_s, options.backoff_s_max)

    def retrying(self, attempt: Callable[[], T], timeout_s: float | None = None) -> T:
        """What an attempt gives, after as many as it takes.

        After one that failed the cluster is asked anew how it looks, where the next one wants to know.

        :raise GaveUp: the time is over.
        :raise ClientError: what another attempt cannot mend.
        """
        patience = self.patience(timeout_s)
        while True:
            try:
                return attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
                self.doubt()
                patience.wait(error)

    def doubt(self) -> None:
        """What is known of leaders may be wrong: whoever wants to know next asks the cluster."""
        self._stale = True

    # --- connections ---

    def new_connections(self) -> Connections:
        """Connections for somebody who waits long on brokers; theirs to close."""
        return Connections(lambda address: Connection.open(address, self.options, self.surroundings))

    def address(self, broker_id: int) -> Address:
        """Where a broker listens.

        :raise LeaderUnknown: the cluster does not say.
        """
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            self.doubt()
            raise LeaderUnknown(f"broker {broker_id} is not known to the cluster at the moment")
        return broker.address

    def connection(self, broker_id: int) -> Connection:
        """The connection to a broker.

        :raise ClientError: none comes about.
        """
        return self._connections.to(self.address(broker_id))

    def ask(self, api: Api, body: dict[str, Any], *, at_most: int | None = None) -> dict[str, Any]:
        """Ask any broker, once each until one answers.

        :raise ClientError: of the last one, where none does.
        """
        last: ClientError = ConnectionFailed("no broker is known")
        for address in self._known_addresses():
            try:
                answer = self._connections.to(address).request(api, body, at_most=at_most)
            except ClientError as error:
                self._failed[address] = self.surroundings.clock()
                last = error
            else:
                self._failed.pop(address, None)
                return answer
        raise last

    def _known_addresses(self) -> list[Address]:
        """Those with an open connection first, those that failed last, whoever failed longest ago before others."""
        brokers = [broker.address for broker in self.view.brokers.values()]
        addresses = list(dict.fromkeys([*brokers, *self._bootstrap]))
        self._failed = {address: at_s for address, at_s in self._failed.items() if address in addresses}
        self.surroundings.random.shuffle(addresses)
        rank = {address: self._connections.to_open(address) is None for address in addresses}
        return sorted(addresses, key=lambda address: (self._failed.get(address, float("-inf")), rank[address]))

    # --- what it looks like ---

    def refresh(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Ask how the cluster looks.

        :param topics: to know of besides those that are known; None: all that there are.
        :raise ClientError: nobody answers.
        """
        names = None if topics is None else sorted({*self.view.topics, *topics})
        body = {
            "topics": None if names is None else [{"name": name} for name in names],
            "allow_auto_topic_creation": False,
        }
        self.view = parse_view(self.ask(METADATA, body), self.view, whole=names is None)
        self._stale, self._told_s = False, self.surroundings.clock()
        return self.view

    def topic(self, name: str) -> TopicView:
        """A topic, as it was last told; asks where that is doubtful, old, or not known.

        :raise BrokerRefused: there is none of that name, as far as the broker knows: it may be new.
        """
        old = self.surroundings.clock() - self._told_s > self.options.metadata_age_s_max
        if self._stale or old or name not in self.view.topics:
            self.refresh((name,))
        found = self.view.topics.get(name)
        if found is None:
            self.doubt()
            raise BrokerRefused(self.view.problems.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
        return found

    def find_topic(self, name: str, timeout_s: float = 5.0) -> TopicView:
        """A topic that is expected to be there; one that was made just now may take a moment to be known.

        :param timeout_s: how long to wait for it.
        :raise ClientError: it is not there, or nobody answers.
        """
        return self.retrying(lambda: self.topic(name), timeout_s)

    def partition(self, partition: TopicPartition) -> PartitionView:
        """A partition.

        :raise BrokerRefused: there is no such topic or partition.
        """
        found = self.topic(partition.topic).partition(partition.partition)
        if found is None:
            self.doubt()
            raise BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
        return found

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition.

        :raise LeaderUnknown: nobody does at the moment.
        """
        leader = self.partition(partition).leader
        if leader == NO_LEADER or leader not in self.view.brokers:
            self.doubt()
            raise LeaderUnknown(f"nobody leads {partition} at the moment")
        return leader

    # --- who decides ---

    def at_controller(self, attempt: Callable[[Connection], T], timeout_s: float | None = None) -> T:
        """Ask the controller, whoever that is by then."""

        def once() -> T:
            if self._stale:
                self.refresh()
            return attempt(self.connection(self.view.controller_id))

        return self.retrying(once, timeout_s)

    def at_coordinator(
        self, kind: CoordinatorKind, key: str, attempt: Callable[[Connection], T], timeout_s: float | None = None
    ) -> T:
        """Ask the coordinator of a group or of a transactional id, whoever that is by then."""

        def once() -> T:
            address = self._coordinators.get((kind, key))
            try:
                if address is None:
                    address = self._coordinators[kind, key] = self._find_coordinator(kind, key)
                return attempt(self._connections.to(address))
            except ClientError:
                self._coordinators.pop((kind, key), None)
                raise

        return self.retrying(once, timeout_s)

    def _find_coordinator(self, kind: CoordinatorKind, key: str) -> Address:
        body = {"key": key, "key_type": int(kind), "coordinator_keys": [key]}
        answer = self.ask(FIND_COORDINATOR, body)
        row = answer["coordinators"][0] if "coordinators" in answer else answer
        check(row, f"coordinator of {kind.name.lower()} {key!r}")
        return Address(row["host"], row["port"])
