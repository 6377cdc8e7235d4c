"""Several real broker processes and their view of the cluster, for tests and benchmarks.

They use the coordinator in a connect string: a real ZooKeeper, or an embedded one in a separate process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from kreplica.errors import ErrorCode, ProtocolError
from kreplica.wire import messages
from kreplica.wire.messages import Api
from tests.support.blocking_client import BlockingClient
from tests.support.broker_process import BrokerProcess, Place, direct_place
from tests.support.links import Links
from tests.support.server_process import ServerFailed

T = TypeVar("T")

QUICK = {
    "zookeeper.session.timeout.ms": 2000,
    "zookeeper.connection.timeout.ms": 20_000,
    "replica.lag.time.max.ms": 3000,
    "controlled.shutdown.retry.backoff.ms": 300,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
}
"""Settings for tests: short timeouts, so that the cluster detects failures quickly."""

POLL_S = 0.05
OUTPUT_LINES_SHOWN = 150
TRACEBACK_SIZE_MAX = 5000


class PartitionView(NamedTuple):
    """A partition in the metadata of a broker.

    :param leader: -1 if the partition has no leader.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class ProcessCluster:
    """Brokers 1 to N; a context manager that kills all processes at the end.

    :param places: broker ID -> addresses.
    :param settings: settings of all brokers, which override ``QUICK``.
    :param racks: racks of the brokers, in the order of their IDs.
    :param links: links that a test cuts or delays.
    :ivar connect: connects to a broker; tests of secured clusters replace it.
    """

    def __init__(
        self,
        directory: Path,
        places: Mapping[int, Place],
        *,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        links: Links | None = None,
    ) -> None:
        self.brokers: dict[int, BrokerProcess] = {}
        self.connect: Callable[[BrokerProcess], BlockingClient] = connect_in_plaintext
        for index, (broker_id, place) in enumerate(places.items()):
            own = {**QUICK, **(settings or {})}
            if racks:
                own["broker.rack"] = racks[index]
            self.brokers[broker_id] = BrokerProcess(directory / f"broker-{broker_id}", broker_id, place, own)
        if links is not None:
            links.attach(lambda: {broker.pid: broker.broker_id for broker in self.brokers.values()})

    # --- processes ---

    def start(self, timeout_s: float = 60.0) -> None:
        """Start all brokers that are not running, in parallel, and wait until each serves and knows all others.

        :raise ServerFailed: a broker did not start.
        """
        started = [broker for broker in self.brokers.values() if not broker.running]
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_until_ready(timeout_s)
        wait_until(self._all_know_all, "every broker to know all others", timeout_s)

    def kill(self) -> None:
        """Kill every process; does nothing the second time."""
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            print(self.output_ends())

    @property
    def answering(self) -> list[BrokerProcess]:
        """Brokers whose process exists and is not paused."""
        return [broker for broker in self.brokers.values() if broker.answering]

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for any Kafka client."""
        return ",".join(broker.address for broker in self.brokers.values())

    def output_ends(self) -> str:
        """Return the end of each broker's output, for error messages."""
        parts = []
        for broker in self.brokers.values():
            lines = broker.all_output.splitlines()[-OUTPUT_LINES_SHOWN:]
            parts.append("\n".join([f"--- broker {broker.broker_id}", *lines]))
        return "\n".join(parts)

    def tracebacks(self) -> list[str]:
        """Return the tracebacks in the output of all brokers."""
        return [
            f"broker {broker.broker_id}: {part[:TRACEBACK_SIZE_MAX]}"
            for broker in self.brokers.values()
            for part in broker.all_output.split("Traceback (most recent call last)")[1:]
        ]

    # --- requests ---

    def request(
        self, api: Api, body: dict[str, Any], *, of: int | None = None, version: int | None = None
    ) -> dict[str, Any]:
        """Send a request to one broker, or to the first that responds.

        :raise OSError: no broker responds.
        """
        candidates = [self.brokers[of]] if of is not None else self.answering
        last: Exception = ConnectionError("no broker runs")
        for broker in candidates:
            try:
                with self.connect(broker) as client:
                    return client.request(api, body, version=version)
            except (OSError, ProtocolError) as error:
                last = error
        raise ConnectionError(f"no broker responds: {last}") from last

    def metadata(self, of: int | None = None) -> dict[str, Any]:
        """Return a broker's metadata for the cluster and all topics."""
        return self.request(messages.METADATA, {"topics": None, "allow_auto_topic_creation": False}, of=of)

    def partitions(self, topic: str, of: int | None = None) -> dict[int, PartitionView]:
        """Return a topic's partitions in a broker's metadata; empty if the broker does not know the topic."""
        rows = [row for row in self.metadata(of)["topics"] if row["name"] == topic]
        return {
            row["partition_index"]: PartitionView(
                row["leader_id"], row["leader_epoch"], tuple(row["replica_nodes"]), tuple(row["isr_nodes"])
            )
            for row in (rows[0]["partitions"] if rows else ())
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """Wait until a partition has a leader, and return it."""
        view = wait_until(lambda: self._partition_with_leader(topic, partition), f"a leader of {topic}-{partition}")
        return view.leader

    def controller(self) -> int:
        """Wait until a controller is known and responds, and return its ID."""

        def controller() -> int | None:
            broker_id: int = self.metadata()["controller_id"]
            return broker_id if broker_id in self.brokers and self.brokers[broker_id].answering else None

        return wait_until(controller, "a controller")

    # --- actions ---

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = 3, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, and wait until every replica is in sync.

        :raise ServerFailed: the request was rejected.
        """
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": str(value)} for key, value in (configs or {}).items()],
        }
        body = {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}
        answer = self.request(messages.CREATE_TOPICS, body, of=self.controller())["topics"][0]
        if answer["error_code"]:
            raise ServerFailed(f"{name}: {ErrorCode.of(answer['error_code']).name} {answer['error_message']}")
        self.wait_until_in_sync(name)

    def wait_until_in_sync(self, topic: str, timeout_s: float = 60.0) -> None:
        """Wait until every running broker reports a leader and a full ISR for all partitions.

        :raise ServerFailed: it did not happen in time; the message contains the last metadata.
        """
        wait_until(
            lambda: all(self._is_in_sync(topic, broker.broker_id) for broker in self.answering),
            f"all replicas of {topic} to be in sync",
            timeout_s,
            lambda: [self.partitions(topic, broker.broker_id) for broker in self.answering],
        )

    def wait_until_out_of_sync(self, topic: str, broker_id: int, timeout_s: float = 30.0) -> None:
        """Wait until every other broker reports that a broker is neither leader nor in sync in any partition.

        :raise ServerFailed: it did not happen in time; the message contains the last metadata.
        """
        others = [broker.broker_id for broker in self.answering if broker.broker_id != broker_id]
        wait_until(
            lambda: all(
                broker_id not in (view.leader, *view.in_sync)
                for of in others
                for view in self.partitions(topic, of).values()
            ),
            f"broker {broker_id} to be out of sync in {topic}",
            timeout_s,
            lambda: [self.partitions(topic, of) for of in others],
        )

    def _is_in_sync(self, topic: str, of: int) -> bool:
        views = self.partitions(topic, of)
        return bool(views) and all(v.leader >= 0 and set(v.in_sync) == set(v.replicas) for v in views.values())

    def _partition_with_leader(self, topic: str, partition: int) -> PartitionView | None:
        view = self.partitions(topic).get(partition)
        return view if view is not None and view.leader in self.brokers else None

    def _all_know_all(self) -> bool:
        ids = {broker.broker_id for broker in self.answering}
        return all({row["node_id"] for row in self.metadata(of)["brokers"]} >= ids for of in ids)


def connect_in_plaintext(broker: BrokerProcess) -> BlockingClient:
    """Connect to a broker's listener."""
    return BlockingClient(broker.place.host, broker.place.port)


def direct_places(zookeeper: str, brokers: int = 3) -> dict[int, Place]:
    """Return loopback addresses for brokers 1 to N, without proxies."""
    return {broker_id: direct_place(zookeeper) for broker_id in range(1, brokers + 1)}


def wait_until(
    condition: Callable[[], T | None], what: str, timeout_s: float = 30.0, now: Callable[[], object] | None = None
) -> T:
    """Call the condition until it returns a true value; if a broker does not respond, it is treated as false.

    :param what: the condition, for the error message.
    :param now: returns the current state, for the error message.
    :return: the condition's value.
    :raise ServerFailed: the condition was not true in time.
    """
    deadline_s = time.monotonic() + timeout_s
    answer: object = None
    while time.monotonic() < deadline_s:
        try:
            result = condition()
        except OSError as error:
            answer = error
        else:
            if result:
                return result
            answer = result
        time.sleep(POLL_S)
    raise ServerFailed(f"waited {timeout_s:g} s for {what}: {answer if now is None else now()}")
