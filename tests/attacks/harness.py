"""Attacks a real cluster, and measures an honest client during the attack and the state of the cluster afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attackers import CREATED_PREFIX, Target

from kreplica.wire import messages
from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until
from tests.support.server_process import ServerFailed, free_ports

HERE = Path(__file__).parent
SAMPLE_S = 0.2
RELEASE_S_MAX = 10.0
KEPT_BYTES_MAX = 96 << 20
"""Memory growth that a broker may still have ten seconds after the attack."""

TOPIC_BYTES_MAX = 32 << 10
"""Memory that a broker needs for one existing topic of one partition, with its log and its metadata."""

MEMORY_GROWTH_MAX = 1 << 30
"""Sum of the limits (``docs/reference/limits.md``) of all buffers that one kind of attack can fill: 512 MiB of
incomplete frames, 256 MiB of queued batches, and their decompressed size."""

JOINED = "has joined with epoch"
SETTINGS = {
    "zookeeper.session.timeout.ms": 6000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "auto.create.topics.enable": "true",
    "leader.imbalance.check.interval.seconds": 1,
    "message.max.bytes": 2_000_000,
}


@dataclass
class Outcome:
    """Result of one attack.

    :param produce_ms: p50, p99 and maximum latency of the honest client's produce requests.
    :param heartbeat_ms: the same for its heartbeats.
    :param memory_growth: largest growth of a broker's memory during the attack, in bytes.
    :param memory_kept: growth of the same broker ten seconds after the attack.
    :param topics_created: number of topics of three replicas that the attack created and that still exist.
    :param sessions_lost: number of times that a broker registered again.
    :param works_after: True if the controller still creates topics and all replicas of the attacked topics are in sync.
    """

    name: str
    seconds: float
    produce_ms: dict[str, float] = field(default_factory=dict)
    heartbeat_ms: dict[str, float] = field(default_factory=dict)
    requests: int = 0
    errors: list[str] = field(default_factory=list)
    memory_growth: int = 0
    memory_kept: int = 0
    topics_created: int = 0
    sessions_lost: int = 0
    works_after: bool = False
    tracebacks: list[str] = field(default_factory=list)

    def violations(self) -> list[str]:
        """Failures on any machine: lost sessions, a cluster that does not work, memory that is not released."""
        found = [f"traceback: {text}" for text in self.tracebacks]
        if self.sessions_lost:
            found.append(f"{self.sessions_lost} sessions were lost")
        if not self.works_after:
            found.append("the cluster does not work afterwards")
        if self.memory_growth > MEMORY_GROWTH_MAX:
            found.append(f"a broker grew by {self.memory_growth:,} bytes")
        if self.memory_kept > self.kept_max:
            found.append(f"a broker kept {self.memory_kept:,} bytes")
        return found

    @property
    def kept_max(self) -> int:
        """Memory growth that is allowed after the attack, in bytes."""
        return KEPT_BYTES_MAX + self.topics_created * TOPIC_BYTES_MAX

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class AttackedCluster:
    """Three brokers on an embedded coordinator, with the topics of attackers and of the honest client."""

    def __init__(self, directory: Path) -> None:
        self._coordinator = CoordinatorProcess(directory / "coordinator")
        self._directory = directory
        self.cluster: ProcessCluster
        self.target: Target

    def __enter__(self) -> AttackedCluster:
        self._coordinator.__enter__()
        try:
            self.cluster = ProcessCluster(self._directory, direct_places(self._coordinator.address), settings=SETTINGS)
            (admin_port,) = free_ports(1)
            self.cluster.brokers[1].settings["kreplica.admin.listener"] = f"127.0.0.1:{admin_port}"
            self.cluster.__enter__()
            self.cluster.create_topic("attacked", 3)
            self.cluster.create_topic("compacted", 3, configs={"cleanup.policy": "compact"})
        except BaseException:
            self._coordinator.__exit__(None, None, None)
            raise
        broker = self.cluster.brokers[1]
        self.target = Target(
            broker.place.host, broker.place.port, admin_port, self._coordinator.port, "attacked", "compacted"
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self.cluster.__exit__(None, None, None)
        self._coordinator.__exit__(None, None, None)

    def run(self, name: str, seconds: float, seed: int = 1, rest_s: float = RELEASE_S_MAX) -> Outcome:
        """Attack broker 1 while the honest client uses it too.

        :param rest_s: time after the attack until the memory is measured.  If it is not released by then, it is
            measured again until ``RELEASE_S_MAX``.
        """
        outcome = Outcome(name, seconds)
        joins = self._joins()
        tracebacks = len(self.cluster.tracebacks())
        topic = f"honest_client-{name.replace('_', '-')}"
        self._create_led_by(topic, 1)
        before = self._memory()
        group = self._group_coordinated_by(topic, 1)
        with MemorySampler(self) as memory, HonestClientProcess(self.target, self.client_topic, group) as honest_client:
            attacker = [sys.executable, str(HERE / "attackers.py"), name, json.dumps(asdict(self.target))]
            subprocess.run([*attacker, str(seconds), str(seed)], timeout=seconds + 120, check=True)
            measured = honest_client.finish()
        outcome.produce_ms, outcome.heartbeat_ms = map(_summary, measured["latencies_ms"].values())
        outcome.requests = len(measured["latencies_ms"]["produce"])
        outcome.errors = measured["errors"]
        deadline_s = time.monotonic() + RELEASE_S_MAX
        time.sleep(rest_s)
        outcome.topics_created = self._created_topics()
        outcome.memory_growth = max(memory.peak[broker_id] - before[broker_id] for broker_id in before)
        outcome.memory_kept = self._growth_since(before)
        while outcome.memory_kept > outcome.kept_max and time.monotonic() < deadline_s:
            time.sleep(SAMPLE_S)
            outcome.memory_kept = self._growth_since(before)
        outcome.works_after = self._works(f"after-{name.replace('_', '-')}")
        outcome.sessions_lost = self._joins() - joins
        outcome.tracebacks = self.cluster.tracebacks()[tracebacks:]
        return outcome

    def _joins(self) -> int:
        return sum(broker.all_output.count(JOINED) for broker in self.cluster.brokers.values())

    def _works(self, topic: str) -> bool:
        try:
            self.cluster.create_topic(topic, 3)
            for attacked in (self.target.topic, self.target.compacted):
                self.cluster.wait_until_in_sync(attacked)
        except ServerFailed:
            return False
        return True

    def _created_topics(self) -> int:
        listed = self.cluster.request(messages.METADATA, {"topics": None}, version=2)
        return sum(topic["name"].startswith(CREATED_PREFIX) for topic in listed["topics"])

    def _memory(self) -> dict[int, int]:
        return {broker_id: broker.resident_bytes() for broker_id, broker in self.cluster.brokers.items()}

    def _growth_since(self, before: dict[int, int]) -> int:
        """Return the memory growth of the broker that grew most, in bytes."""
        return max(size - before[broker_id] for broker_id, size in self._memory().items())

    def _create_led_by(self, topic: str, broker_id: int) -> None:
        """Create topics of one partition until the attacked broker leads one."""
        for attempt in range(20):
            self.cluster.create_topic(f"{topic}-{attempt}", 1, 3)
            if self.cluster.leader(f"{topic}-{attempt}") == broker_id:
                self.client_topic = f"{topic}-{attempt}"
                return
        raise AssertionError("no topic is led by the attacked broker")


    def _group_coordinated_by(self, prefix: str, broker_id: int) -> str:
        """Return a group ID that hashes to a partition led by the attacked broker."""

        def find_group() -> str | None:
            for number in range(100):
                body = {"key": f"{prefix}-{number}", "key_type": 0}
                if self.cluster.request(messages.FIND_COORDINATOR, body, version=2)["node_id"] == broker_id:
                    return f"{prefix}-{number}"
            return None

        return wait_until(find_group, "a group that the attacked broker coordinates")


class HonestClientProcess:
    """The honest client, which runs in a separate process."""

    def __init__(self, target: Target, topic: str, group: str) -> None:
        command = [sys.executable, str(HERE / "honest_client.py"), target.host, str(target.port), topic, group]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> HonestClientProcess:
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if ready != "ready\n":
            self._process.kill()
            raise AssertionError(f"the honest client cannot connect: {ready!r}")
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.wait()

    def finish(self) -> dict[str, Any]:
        """Stop the process, and return its measurements."""
        output, _ = self._process.communicate(timeout=60)
        measured: dict[str, Any] = json.loads(output)
        return measured


def _summary(latencies_ms: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_ms) or [0.0]
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[min(int(part * len(ordered)), len(ordered) - 1)], 1) for name, part in at.items()}


class MemorySampler:
    """Samples the memory of the brokers in a thread.

    :ivar peak: broker ID -> the largest value.
    """

    def __init__(self, attacked: AttackedCluster) -> None:
        self.peak = attacked._memory()
        self._attacked = attacked
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            for broker_id, size in self._attacked._memory().items():
                self.peak[broker_id] = max(self.peak[broker_id], size)
