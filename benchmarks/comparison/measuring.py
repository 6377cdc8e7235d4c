"""Measures each kind of scenario on any deployment; a sample has a number for each figure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import count

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker_process import allow_files, resident_mb
from benchmarks.comparison.deployments import Cluster, Deployment
from benchmarks.comparison.fail_over import FailOver
from benchmarks.comparison.leaders import MetadataConnection
from benchmarks.comparison.scenarios import FAIL_OVERS, Kind, Scale, Scenario
from benchmarks.driver import Driver, Measurement, measure, write_ahead
from benchmarks.raw_client import RawClient

MB = 1_000_000
FETCH_BYTES = 1 << 20
WRITTEN_MB_MAX = 900
"""Maximum size of a topic: it must fit into the first segment, whose pages are written in advance."""

START_S_MAX = 120.0

_names = count(1)


class Run:
    """Samples from one deployment."""

    def __init__(self, deployment: Deployment, driver: Driver, scale: Scale) -> None:
        self._deployment = deployment
        self._driver = driver
        self._scale = scale
        self._fail_over_run: FailOver | None = None
        self._kinds: Mapping[Kind, Callable[[Scenario], dict[str, float]]] = {
            Kind.PRODUCE: self._produce,
            Kind.CONSUME: self._consume,
            Kind.LATENCY: self._latency,
            Kind.TINY: self._tiny,
            Kind.CONNECT: self._connect,
            **dict.fromkeys(FAIL_OVERS, self._fail_over),
        }

    @cached_property
    def _admin(self) -> AdminClient:
        wait_for_controller(port_of(self._deployment))
        return AdminClient({"bootstrap.servers": self._deployment.plain_bootstrap})

    def sample(self, scenario: Scenario) -> dict[str, float]:
        """Run the scenario once.

        :raise RuntimeError: the load program or a broker failed; the message contains its output.
        """
        return self._kinds[scenario.kind](scenario)

    # --- throughput ---

    def _produce(self, scenario: Scenario) -> dict[str, float]:
        topic = self._new_topic(scenario)
        try:
            return _throughput(self._write(scenario, topic))
        finally:
            self._remove_topic(topic)

    def _consume(self, scenario: Scenario) -> dict[str, float]:
        topic = self._new_topic(scenario)
        try:
            written = self._write(scenario, topic)
            return _throughput(self._load("consume", topic, 1, written.load["messages"], FETCH_BYTES))
        finally:
            self._remove_topic(topic)

    def _write(self, scenario: Scenario, topic: str) -> Measurement:
        size = int(self._scale.megabytes * MB * scenario.share)
        return self._load(
            "produce",
            *(topic, 1, scenario.record_bytes, scenario.batch_bytes, size, scenario.acks),
            before=lambda: self._touch(topic, size + size // 8, scenario.synced),
        )

    def _touch(self, topic: str, size: int, synced: bool) -> None:
        logs = self._deployment.logs(topic, 0)
        assert logs, f"{topic} has no log"
        for log in logs:
            write_ahead(log, size, sync=synced)

    # --- latency, requests ---

    def _latency(self, scenario: Scenario) -> dict[str, float]:
        per_s = scenario.records_per_s * scenario.record_bytes
        seconds = max(1, min(self._scale.latency_s, WRITTEN_MB_MAX * MB // (per_s * 5 // 4)))
        topic = self._new_topic(scenario)
        try:
            got = self._load(
                "latency",
                *(topic, scenario.records_per_s, seconds, scenario.record_bytes),
                *(scenario.acks, scenario.linger_ms, scenario.batch_bytes),
                before=lambda: self._touch(topic, per_s * seconds * 5 // 4, synced=False),
            )
        finally:
            self._remove_topic(topic)
        figures = {f"{name} ms": got.load[f"{name}_us"] / 1000 for name in ("p50", "p90", "p99")}
        return {**figures, "broker us/record": got.broker_cpu_s * 1e6 / got.load["messages"]}

    def _tiny(self, scenario: Scenario) -> dict[str, float]:
        topic = self._new_topic(scenario)
        try:
            got = self._load("tiny", topic, scenario.count, scenario.window, self._scale.tiny_s)
        finally:
            self._remove_topic(topic)
        cost_us = got.broker_cpu_s * 1e6 / got.load["messages"]
        return {"per core": 1e6 / cost_us, "requests/s": got.load["messages"] / got.load["seconds"]}

    def _connect(self, scenario: Scenario) -> dict[str, float]:
        assert self._deployment.encryption is not None
        cpu_s = self._deployment.cpu_s()
        connections, seconds = self._deployment.encryption.connect_repeatedly(self._scale.tiny_s)
        broker_us = (self._deployment.cpu_s() - cpu_s) * 1e6 / connections
        return {"connections/s": connections / seconds, "broker us/connection": broker_us}

    def _load(self, mode: str, *arguments: object, before: Callable[[], None] | None = None) -> Measurement:
        encryption = self._deployment.encryption
        config = {} if encryption is None else encryption.client_config
        return measure(self._driver, self._deployment, mode, *arguments, before=before, client_config=config)

    def _fail_over(self, scenario: Scenario) -> dict[str, float]:
        assert isinstance(self._deployment, Cluster)
        if self._fail_over_run is None:
            self._fail_over_run = FailOver(self._deployment, self._scale.partitions)
        return self._fail_over_run.sample(scenario.kind)

    # --- topics ---

    def _new_topic(self, scenario: Scenario) -> str:
        name = f"bench-{next(_names)}"
        self._create(name, 1, scenario, dict(scenario.topic_config))
        return name

    def _create(self, name: str, partitions: int, scenario: Scenario, config: dict[str, str]) -> None:
        topic = NewTopic(name, partitions, scenario.brokers, config=config)
        for future in self._admin.create_topics([topic], operation_timeout=60).values():
            future.result(90)

    def _remove_topic(self, name: str) -> None:
        for future in self._admin.delete_topics([name], operation_timeout=30).values():
            future.result(60)


def first_record_s(port: int, begun_s: float, topic: bytes = b"first") -> float:
    """Produce until a record is acknowledged, and return the seconds since the start of the broker's process.

    :raise RuntimeError: it takes longer than two minutes.
    """
    response: object = "no process listens on the port"
    while time.monotonic() - begun_s < START_S_MAX:
        try:
            client = RawClient(port)
        except OSError:
            time.sleep(0.002)
            continue
        try:
            client.request_topic(topic)
            response = client.produce(topic, b"x")
            if response == 0:
                return time.monotonic() - begun_s
        except OSError as error:
            response = error
        finally:
            client.close()
        time.sleep(0.002)
    raise RuntimeError(f"no record was acknowledged; the last response: {response}")


def wait_for_controller(port: int) -> None:
    """Wait until the metadata names a controller, because a client without one may wait for long before it retries.

    :raise RuntimeError: the metadata names no controller for two minutes.
    """
    deadline_s = time.monotonic() + START_S_MAX
    connection = MetadataConnection(port)
    while connection.read_metadata(()).controller < 0:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the metadata names no controller")
        time.sleep(0.05)
    connection.close()


def idle_mb(port: int, pid: int, count: int) -> dict[str, float]:
    """Return the memory of connections that have only sent ApiVersions."""
    wanted = min(count, allow_files() - 100)
    before_mb = resident_mb(pid)
    clients: list[RawClient] = []
    try:
        for _ in range(wanted):
            clients.append(RawClient(port))
            clients[-1].request_versions()
        return {"MB for 10,000": (resident_mb(pid) - before_mb) * 10_000 / wanted}
    finally:
        for client in clients:
            client.close()


def port_of(deployment: Deployment) -> int:
    """Return the port of the first broker's listener without encryption."""
    return int(deployment.plain_bootstrap.partition(",")[0].rpartition(":")[2])


def _throughput(got: Measurement) -> dict[str, float]:
    rate = got.load.get("timed_bytes", got.load["bytes"]) / MB / got.load["seconds"]
    size_mb = got.load["bytes"] / MB
    return {
        "MB/s": rate,
        "broker us/MB": got.broker_cpu_s * 1e6 / size_mb,
        "client us/MB": got.load["client_cpu_s"] * 1e6 / size_mb,
    }
