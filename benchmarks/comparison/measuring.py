"""Measures each kind of scenario on any deployment; a sample contains a number for each measured quantity.

``java_measuring`` measures with Kafka's own programs, and ``steady`` measures latency at shares of the maximum rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import count

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker_process import allow_files, resident_mb
from benchmarks.comparison.deployments import Cluster, Deployment
from benchmarks.comparison.fail_over import FailOver
from benchmarks.comparison.java_measuring import JavaPrograms
from benchmarks.comparison.leaders import MetadataConnection
from benchmarks.comparison.scenarios import FAIL_OVERS, Kind, Scale, Scenario
from benchmarks.comparison.steady import MaximumRates, highest_rate
from benchmarks.driver import Driver, Measurement, measure, write_ahead
from benchmarks.raw_client import RawClient

MB = 1_000_000
FETCH_BYTES = 1 << 20
WRITTEN_MB_MAX = 900
"""Maximum amount of data written to a topic: it must fit into the first segment, whose pages are written in advance."""

START_S_MAX = 120.0

WARM_UPS_MAX = 5
STEADY_CHANGE = 0.1
"""A system is warm if the first value of a sample differs from the previous one by less than this share."""

_names = count(1)


class Run:
    """Takes samples from one deployment.

    :param maxima: maximum rates of all systems that are measured in turn with this one.
    """

    def __init__(self, deployment: Deployment, driver: Driver, scale: Scale, maxima: MaximumRates) -> None:
        self._deployment = deployment
        self._driver = driver
        self._scale = scale
        self._maxima = maxima
        java = JavaPrograms(deployment, scale, self._with_topic)
        self._fail_over_run: FailOver | None = None
        self._kinds: Mapping[Kind, Callable[[Scenario], dict[str, float]]] = {
            Kind.PRODUCE: self._produce,
            Kind.CONSUME: self._consume,
            Kind.LATENCY: self._latency,
            Kind.TINY: self._tiny,
            Kind.CONNECT: self._connect,
            Kind.STEADY: self._steady,
            Kind.JAVA_PRODUCE: java.produce,
            Kind.JAVA_CONSUME: java.consume,
            Kind.JAVA_END_TO_END: java.end_to_end,
            Kind.MEMORY: lambda _: {"MB": deployment.resident_mb()},
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

    def warm_up(self, scenario: Scenario) -> None:
        """Repeat the scenario until its first value is steady, at most ``WARM_UPS_MAX`` times.

        A Java virtual machine compiles code for many seconds.  The warm-up for ``STEADY`` finds the maximum rate.
        """
        if scenario.kind is Kind.STEADY:
            if not self._maxima.has(scenario.brokers, self._deployment.system):
                rate = highest_rate(partial(self._sustains, scenario))
                self._maxima.add(scenario.brokers, self._deployment.system, rate)
            return
        previous = None
        for _ in range(WARM_UPS_MAX if scenario.kind not in FAIL_OVERS else 1):
            first = next(iter(self.sample(scenario).values()))
            if previous is not None and abs(first - previous) <= STEADY_CHANGE * previous:
                return
            previous = first

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
        return _latencies(self._run_latency(scenario, self._scale.latency_s))

    def _steady(self, scenario: Scenario) -> dict[str, float]:
        rate = round(self._maxima.shared(scenario.brokers) * scenario.load_percent / 100)
        return {**self._latency(replace(scenario, records_per_s=rate)), "records/s": float(rate)}

    def _sustains(self, scenario: Scenario, records_per_s: int) -> Measurement | None:
        """Return the measurement of one second at a rate; None if a queue in the client overflowed."""
        try:
            return self._run_latency(replace(scenario, records_per_s=records_per_s), 1)
        except RuntimeError:
            self._deployment.check_running()
            return None

    def _run_latency(self, scenario: Scenario, seconds_max: int) -> Measurement:
        per_s = scenario.records_per_s * scenario.record_bytes
        seconds = max(1, min(seconds_max, WRITTEN_MB_MAX * MB // (per_s * 5 // 4)))
        topic = self._new_topic(scenario)
        try:
            return self._load(
                "latency",
                *(topic, scenario.records_per_s, seconds, scenario.record_bytes),
                *(scenario.acks, scenario.linger_ms, scenario.batch_bytes),
                before=lambda: self._touch(topic, per_s * seconds * 5 // 4, synced=False),
            )
        finally:
            self._remove_topic(topic)

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
        encryption, deployment = self._deployment.encryption, self._deployment
        config = {} if encryption is None else encryption.client_config
        switches = []

        def begin() -> None:
            if before is not None:
                before()
            switches.append(deployment.context_switches())

        got = measure(self._driver, deployment, mode, *arguments, before=begin, client_config=config)
        return replace(got, broker_switches=deployment.context_switches() - switches[0])

    def _fail_over(self, scenario: Scenario) -> dict[str, float]:
        assert isinstance(self._deployment, Cluster)
        if self._fail_over_run is None:
            self._fail_over_run = FailOver(self._deployment, self._scale.partitions)
        return self._fail_over_run.sample(scenario.kind)

    # --- topics ---

    @contextmanager
    def _with_topic(self, scenario: Scenario) -> Iterator[str]:
        topic = self._new_topic(scenario)
        try:
            yield topic
        finally:
            self._remove_topic(topic)

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


def first_record_s(port: int, started_s: float, topic: bytes = b"first") -> float:
    """Produce until a record is acknowledged, and return the seconds since the start of the broker's process.

    :raise RuntimeError: this takes longer than two minutes.
    """
    response: object = "no process listens on the port"
    while time.monotonic() - started_s < START_S_MAX:
        try:
            client = RawClient(port)
        except OSError:
            time.sleep(0.002)
            continue
        try:
            client.request_topic(topic)
            response = client.produce(topic, b"x")
            if response == 0:
                return time.monotonic() - started_s
        except OSError as error:
            response = error
        finally:
            client.close()
        time.sleep(0.002)
    raise RuntimeError(f"no record was acknowledged; the last response: {response}")


def wait_for_controller(port: int) -> None:
    """Wait until the metadata names a controller, because clients that get none may take long to retry.

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
    """Return the memory of connections whose only request was ApiVersions."""
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
    """Return the port of the first broker's unencrypted listener."""
    return int(deployment.plain_bootstrap.partition(",")[0].rpartition(":")[2])


def _throughput(got: Measurement) -> dict[str, float]:
    rate = got.load.get("timed_bytes", got.load["bytes"]) / MB / got.load["seconds"]
    size_mb = got.load["bytes"] / MB
    return {
        "MB/s": rate,
        "broker us/MB": got.broker_cpu_s * 1e6 / size_mb,
        "client us/MB": got.load["client_cpu_s"] * 1e6 / size_mb,
        "broker switches/MB": (got.broker_switches or 0) / size_mb,
    }


def _latencies(got: Measurement) -> dict[str, float]:
    return {
        **{f"{name} ms": got.load[f"{name}_us"] / 1000 for name in ("p50", "p90", "p99")},
        "broker us/record": got.broker_cpu_s * 1e6 / got.load["messages"],
        "broker switches/record": (got.broker_switches or 0) / got.load["messages"],
    }
