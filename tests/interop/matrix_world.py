"""Environment of a matrix scenario: the library's cluster, new names, ready topics, faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from matrix_clusters import UnderTest
from twisted.internet.defer import Deferred

from kreplica.client.client_runtime import default_runtime
from kreplica.client.cluster import Cluster
from kreplica.client.connection import Connection
from kreplica.client_core.errors import BrokerRefused, ClientError, LeaderUnknown, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.options import ClientOptions
from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.messages import CREATE_TOPICS, METADATA

T = TypeVar("T")

WAIT_S_MAX = 30.0
POLL_S = 0.02


class World:
    """Environment of one scenario; the fixture restarts the brokers that it kills.

    :ivar cluster: the library's cluster.
    :ivar killed: IDs of killed brokers.
    """

    def __init__(self, under_test: UnderTest, reactor: Any) -> None:
        self.under_test = under_test
        self.reactor = reactor
        self.killed: list[int] = []
        self._id = uuid4().hex[:8]
        self._numbers = count()
        self._clusters: list[Cluster] = []
        self.cluster = self.new_cluster()

    def new_cluster(self, **options: Any) -> Cluster:
        """Return another client of the same cluster, as of another application."""
        runtime = default_runtime(self.reactor)
        given = {"backoff_s": 0.02, "backoff_s_max": 0.2, **options}
        servers = self.under_test.brokers.bootstrap_servers
        cluster = Cluster(servers, options=ClientOptions(**given), runtime=runtime)
        self._clusters.append(cluster)
        return cluster

    async def close(self) -> None:
        for cluster in self._clusters:
            await cluster.close()

    def new_name(self, kind: str = "t") -> str:
        """Return an unused name; names are in alphabetic order."""
        return f"{kind}-{self._id}-{next(self._numbers)}"

    # --- topics ---

    async def topic(self, partitions: int = 1, configs: Mapping[str, object] | None = None, name: str = "") -> str:
        """Create a topic of three replicas; returns when all brokers know it and all replicas are in sync."""
        name = name or self.new_name()
        rows = [{"name": key, "value": str(value)} for key, value in (configs or {}).items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 3,
            "assignments": [],
            "configs": rows,
        }
        body = {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}

        async def create(connection: Connection) -> None:
            check((await self.cluster.request(connection, CREATE_TOPICS, body))["topics"][0], name)

        await self.cluster.at_controller(create)
        await self.wait_until_in_sync(name)
        self.cluster.mark_stale()
        return name

    async def wait_until_in_sync(self, topic: str, partitions: int = 1) -> None:
        """Wait until all running brokers report leaders and full ISRs for all partitions.

        :param partitions: minimum number of partitions.
        """

        async def check_partitions() -> None:
            await self.cluster.refresh()
            for broker_id in sorted(self.cluster.view.brokers):
                if broker_id in self.killed:
                    continue
                connection = await self.cluster.connection(broker_id)
                body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
                (row,) = (await self.cluster.request(connection, METADATA, body))["topics"]
                check(row, topic)
                if len(row["partitions"]) < partitions:
                    raise LeaderUnknown(f"{topic} has {len(row['partitions'])} partitions")
                for part in row["partitions"]:
                    if part["leader_id"] < 0 or len(part["isr_nodes"]) < len(part["replica_nodes"]) - len(self.killed):
                        raise LeaderUnknown(f"{topic} is not in sync: {part}")

        await self.cluster.retrying(check_partitions, WAIT_S_MAX)

    def partitions(self, topic: str, count: int = 1) -> list[TopicPartition]:
        """Return the first partitions of a topic."""
        return [TopicPartition(topic, number) for number in range(count)]

    # --- waiting ---

    def pause(self, seconds: float) -> Deferred[None]:
        return pause(self.reactor, seconds)

    async def wait_until(self, condition: Callable[[], T | None], what: str = "something") -> T:
        """Wait until the function returns a true value, and return it."""
        deadline_s = self.reactor.seconds() + WAIT_S_MAX
        while not (found := condition()):
            assert self.reactor.seconds() < deadline_s, f"no {what} in time"
            await self.pause(POLL_S)
        return found

    # --- faults ---

    async def kill_leader(self, topic: str, partition: int = 0) -> None:
        """Kill the leader of a partition with SIGKILL."""
        self.cluster.mark_stale()
        await self.kill(await self.cluster.leader(TopicPartition(topic, partition)))

    async def kill_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Kill the coordinator of a group or of a transactional ID with SIGKILL."""
        address = await self.cluster.coordinator(kind, key)
        await self.cluster.refresh()
        brokers = self.cluster.view.brokers.values()
        await self.kill(next(each.broker_id for each in brokers if each.address == address))

    async def kill(self, broker: int) -> None:
        """Kill a broker with SIGKILL, as soon as the internal topics do not need it."""
        for topic in sorted(INTERNAL_TOPICS & (await self.cluster.refresh(None)).topics.keys()):
            await self.wait_until_in_sync(topic)
        self.killed.append(broker)
        self.under_test.brokers.kill(broker)

    def start_killed(self) -> None:
        """Restart the killed brokers; blocks."""
        for broker in self.killed:
            self.under_test.brokers.start(broker)


async def outcome_of(work: Awaitable[object]) -> object:
    """Return the result of an awaitable, or the name of its error with the broker's error code if it has one."""
    try:
        return await work
    except ClientError as error:
        return error_text(error)


def error_text(error: BaseException) -> str:
    """Return an error's text in the table: class, error code of the response, and the last cause."""
    text = type(error).__name__
    if isinstance(error, BrokerRefused) and isinstance(error.code, ErrorCode):
        text += f" {error.code.name}"
    if error.__cause__ is not None:
        text += f" < {error_text(error.__cause__)}"
    return text


async def gather_results(deferreds: Iterable[Deferred[T]]) -> list[T]:
    """Return the results of all Deferreds, in order."""
    return [await each for each in deferreds]
