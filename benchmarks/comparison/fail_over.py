"""Fail-over: time until all partitions have leaders after a broker dies, is shut down, or the controller dies.

A client learns the leaders from Metadata responses.  Every remaining broker is polled for every partition for which it
has not returned a live leader yet: a partition has a leader when all brokers return one.  The clock starts at the
signal, not when the process exits, because a JVM can take longer to exit than its session to expire.  The end of the
session is read from ZooKeeper, because no broker can know about the failure before.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, cycle, product
from threading import Thread

from benchmarks.comparison.deployments import Cluster
from benchmarks.comparison.leaders import MetadataConnection, PartitionLeader
from benchmarks.comparison.scenarios import Kind
from benchmarks.zookeeper_load import Pipe
from kreplica.cluster.znodes import CONTROLLER, broker_path
from kreplica.errors import ErrorCode
from kreplica.wire.messages import CREATE_TOPICS, ELECT_LEADERS
from kreplica.zookeeper.records import Opcode
from kreplica.zookeeper.requests import GetData
from tests.support.blocking_client import BlockingClient

TOPIC_PARTITIONS = 1000
TIME_S_MAX = 120.0
SETTLING_S_MAX = 600.0
PAUSE_S = 0.01
LOOK_PAUSE_S = 0.005
SETTLING_PAUSE_S = 0.25
REQUEST_MS = 60_000
CREATE_VERSION, ELECT_VERSION = 4, 1
PREFERRED = 0

_names = count(1)


class FailOver:
    """Measures fail-overs on a cluster with many partitions, which have a replica on every broker.

    :param partitions: number of partitions; a multiple of 1,000.
    """

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._topics = [f"wide-{number}" for number in range(partitions // TOPIC_PARTITIONS)]
        self._made = False
        self._cases: Mapping[Kind, Callable[[], dict[str, float]]] = {
            Kind.BROKER_KILLED: lambda: self._kill(is_controller=False),
            Kind.BROKER_STOPPED: self._stop,
            Kind.CONTROLLER_KILLED: lambda: self._kill(is_controller=True),
        }

    def sample(self, kind: Kind) -> dict[str, float]:
        """Run one fail-over; afterwards all brokers run, and each leads its preferred partitions.

        :raise RuntimeError: the fail-over takes more than two minutes, or balancing the cluster again more than ten.
        """
        if not self._made:
            for topic in self._topics:
                create_topic(self._cluster.ports, topic, TOPIC_PARTITIONS, len(self._cluster.ports))
            self._made = True
            self._settle()
        figures = self._cases[kind]() | {"partitions": self._partitions}
        self._settle()
        return figures

    # --- events ---

    def _kill(self, *, is_controller: bool) -> dict[str, float]:
        victim = self._broker(is_controller=is_controller)
        session = _Session(self._cluster.zookeeper, CONTROLLER if is_controller else broker_path(victim))
        making = _Completion({number: port for number, port in self._cluster.ports.items() if number != victim})
        with Watch(self._cluster, victim, self._topics) as watch:
            session.start()
            killed_s = watch.signal(signal.SIGKILL)
            if is_controller:
                making.start()
            seen = watch.until_led()
        ended_s = session.result()
        figures = {
            "since the session ended, s": seen.last_s - ended_s,
            "since the kill, s": seen.last_s - killed_s,
            "first to last leader, s": seen.last_s - seen.first_s,
        }
        if is_controller:
            made_s = making.result()
            figures["topic created, since the session ended, s"] = made_s - ended_s
            figures["topic created, since the kill, s"] = made_s - killed_s
        self._cluster.wait(victim)
        self._cluster.start(victim)
        return figures

    def _stop(self) -> dict[str, float]:
        victim = self._broker(is_controller=False)
        end = _End(self._cluster, victim)
        with Watch(self._cluster, victim, self._topics) as watch:
            signalled_s = watch.signal(signal.SIGTERM)
            end.start()
            seen = watch.until_led()
        gone_s = end.result()
        self._cluster.start(victim)
        return {
            "since the signal, s": seen.last_s - signalled_s,
            "first to last leader, s": seen.last_s - seen.first_s,
            "until process exit, s": gone_s - signalled_s,
        }

    # --- the cluster ---

    def _broker(self, *, is_controller: bool) -> int:
        """Return the controller, or the first broker that is not the controller."""
        controller = self._controller()
        return controller if is_controller else min(number for number in self._cluster.ports if number != controller)

    def _controller(self) -> int:
        for port in self._cluster.ports.values():
            connection = MetadataConnection(port)
            controller = connection.read_metadata(()).controller
            connection.close()
            if controller in self._cluster.ports:
                return controller
        raise RuntimeError("no broker knows the controller")

    def _settle(self) -> None:
        """Wait until all brokers return full ISRs, and the preferred leader of each partition."""
        self._wait_for(lambda each: each.in_sync == len(self._cluster.ports), "all replicas to be in sync")
        body = {"election_type": PREFERRED, "topic_partitions": None, "timeout_ms": REQUEST_MS}
        with BlockingClient("127.0.0.1", self._cluster.ports[self._controller()], timeout_s=TIME_S_MAX) as client:
            client.request(ELECT_LEADERS, body, version=ELECT_VERSION)
        self._wait_for(lambda each: each.leader == each.preferred, "all preferred replicas to be leaders")

    def _wait_for(self, holds: Callable[[PartitionLeader], bool], what: str) -> None:
        deadline_s = time.monotonic() + SETTLING_S_MAX
        with ExitStack() as stack:
            for port in self._cluster.ports.values():
                connection = MetadataConnection(port)
                stack.callback(connection.close)
                while sum(map(holds, connection.read_metadata(self._topics).partitions)) != self._partitions:
                    if time.monotonic() > deadline_s:
                        raise RuntimeError(f"waited {SETTLING_S_MAX:g} s for {what}")
                    time.sleep(SETTLING_PAUSE_S)


@dataclass
class Seen:
    """Times of observations, in seconds of the monotonic clock.

    :ivar first_s: time at which a broker first returned a live leader for one of the victim's partitions.
    :ivar last_s: time by which every broker had returned a live leader for every partition.
    """

    first_s: float = 0.0
    last_s: float = 0.0


class Watch:
    """Polls the remaining brokers during a failure; used as a context manager.

    Each poll asks one broker for one topic, so that polling costs little and is frequent.
    """

    def __init__(self, cluster: Cluster, victim: int, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._victim = victim
        self._topics = tuple(topics)
        self._living = frozenset(cluster.ports) - {victim}
        self._connections: list[MetadataConnection] = []
        self._led_by_victim: set[tuple[str, int]] = set()
        self._seen = Seen()

    def __enter__(self) -> Watch:
        self._connections = [MetadataConnection(self._cluster.ports[number]) for number in sorted(self._living)]
        led = self._connections[0].read_metadata(self._topics).partitions
        self._led_by_victim = {(each.topic, each.partition) for each in led if each.leader == self._victim}
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def signal(self, number: int) -> float:
        """Send a signal to the victim, and return the time."""
        os.kill(self._cluster.pids()[self._victim], number)
        return time.monotonic()

    def until_led(self) -> Seen:
        """Poll until every partition has a live leader.

        :raise RuntimeError: this takes longer than two minutes.
        """
        deadline_s = time.monotonic() + TIME_S_MAX
        waiting = deque(product(self._topics, self._connections))
        while waiting:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"some partitions had no leader {TIME_S_MAX:g} s after broker {self._victim} failed")
            topic, connection = waiting.popleft()
            if not self._is_led(topic, connection):
                waiting.append((topic, connection))
                time.sleep(LOOK_PAUSE_S)
        return self._seen

    def _is_led(self, topic: str, connection: MetadataConnection) -> bool:
        partitions = connection.read_metadata((topic,)).partitions
        signalled_s = time.monotonic()
        led = [(topic, each.partition) for each in partitions if each.leader in self._living]
        if not self._seen.first_s and not self._led_by_victim.isdisjoint(led):
            self._seen.first_s = signalled_s
        self._seen.last_s = signalled_s
        return len(led) == TOPIC_PARTITIONS


class _Moment(Thread):
    """Thread that waits for an event and records its time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._found_s = 0.0

    def find(self) -> None:
        """Return when the event has happened."""
        raise NotImplementedError

    def run(self) -> None:
        self.find()
        self._found_s = time.monotonic()

    def result(self) -> float:
        """Return the time of the event, in seconds of the monotonic clock.

        :raise RuntimeError: the event does not happen within two minutes.
        """
        self.join(TIME_S_MAX)
        if not self._found_s:
            raise RuntimeError(f"waited {TIME_S_MAX:g} s for {self.find.__doc__}")
        return self._found_s


class _End(_Moment):
    """The exit of a process."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._broker = broker

    def find(self) -> None:
        """Wait until the victim's process has exited."""
        self._cluster.wait(self._broker)


class _Session(_Moment):
    """The end of a session: its znode has been deleted, or belongs to another session."""

    def __init__(self, zookeeper: str, path: str) -> None:
        super().__init__()
        self._pipe = Pipe(int(zookeeper.rpartition(":")[2]))
        self._request = GetData(path).encode()
        self._before = self._pipe.request(Opcode.GET_DATA, self._request)

    def find(self) -> None:
        """Wait until the victim's session has ended."""
        while self._pipe.request(Opcode.GET_DATA, self._request) == self._before:
            time.sleep(LOOK_PAUSE_S)
        self._pipe.close()


class _Completion(_Moment):
    """The completion of a change requested from the remaining brokers."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        super().__init__()
        self._ports = ports

    def find(self) -> None:
        """Wait until a topic exists and has leaders in the metadata of all brokers."""
        name = f"probe-{next(_names)}"
        create_topic(self._ports, name, 1, len(self._ports))
        for port in self._ports.values():
            connection = MetadataConnection(port)
            while not any(each.leader in self._ports for each in connection.read_metadata((name,)).partitions):
                time.sleep(PAUSE_S)
            connection.close()


def create_topic(ports: Mapping[int, int], name: str, partitions: int, replicas: int) -> None:
    """Create a topic by sending the request to one broker after another, until the controller has created it.

    :raise RuntimeError: this takes longer than two minutes; the message contains the last response.
    """
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
    }
    body = {"topics": [topic], "timeout_ms": REQUEST_MS, "validate_only": False}
    deadline_s = time.monotonic() + TIME_S_MAX
    for port in cycle(ports.values()):
        with BlockingClient("127.0.0.1", port, timeout_s=TIME_S_MAX) as client:
            response = client.request(CREATE_TOPICS, body, version=CREATE_VERSION)["topics"][0]
        if ErrorCode.of(response["error_code"]) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{name} could not be created: {response}")
        time.sleep(PAUSE_S)
