"""Throughput, latency, request rate and idle connections of one broker, compared with the targets.

Method: this program starts every process.  Before each measured part, the page cache of the log is filled
(``driver.write_ahead``).  Cases alternate within one run, so that a slow minute of the machine affects them all, and
values are medians.  The broker's CPU time is the scheduler's count for all its threads, which other load on the
machine affects far less than MB/s.  MB are 1e6 bytes of record values.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker_process import BrokerProcess, allow_files
from benchmarks.driver import Driver, Measurement, find_driver, measure, remove_driver, write_ahead
from benchmarks.raw_client import RawClient

KB, MB = 1000, 1_000_000
# Free the pages of deleted logs at once instead of after a minute, for the next case.
OVERRIDES = {"log.segment.delete.delay.ms": "0"}
# The largest size is below the default of message.max.bytes.
BATCHES = {16_384: "16 K", 131_072: "128 K", 1_000_000: "1 M"}
FETCH_BYTES = 1 << 20
LATENCY_SETTINGS = (1, 0, 16_384)
"""acks, linger in ms, batch size in bytes."""
FIRST_SEGMENT = "00000000000000000000.log"
IDLE_S = 3.0


@dataclass(frozen=True)
class Target:
    """Target for a measured value.

    :param least: lower bound of a throughput; None if there is none.
    :param most: upper bound of a cost; None if there is none.
    """

    name: str
    unit: str
    least: float | None = None
    most: float | None = None

    def met(self, value: float) -> bool:
        """True if the value reaches the target."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f">= {self.least:g} {self.unit}" if self.least is not None else f"<= {self.most:g} {self.unit}"


@dataclass(frozen=True)
class Scale:
    """Amount of work."""

    repetitions: int
    megabytes: int
    latency_s: int
    tiny_s: float
    idle_connections: int
    partitions: tuple[int, ...]


SCALES = {
    "quick": Scale(3, 256, 2, 1.0, 2000, (1,)),
    "full": Scale(5, 400, 8, 3.0, 10_000, (1, 4)),
}


@dataclass(frozen=True)
class Stream:
    """Records of one size in batches of one size, written once and read back.

    :param synced: True if the broker syncs records before it acknowledges them (``flush.messages=1``).
    """

    record_bytes: int
    batch_bytes: int
    partitions: int = 1
    synced: bool = False

    def __str__(self) -> str:
        record = f"{self.record_bytes} B" if self.record_bytes < KB else f"{self.record_bytes // KB} KB"
        text = f"{record} in {BATCHES[self.batch_bytes]} batches"
        text += f", {self.partitions} partitions" if self.partitions > 1 else ""
        return f"{text}, synced" if self.synced else text


def streams(scale: Scale) -> Iterator[Stream]:
    """Return the cases for producing and consuming."""
    for partitions in scale.partitions:
        for record_bytes in (100, 1000, 10_000):
            for batch_bytes in BATCHES:
                yield Stream(record_bytes, batch_bytes, partitions)
    for batch_bytes in BATCHES:
        yield Stream(1000, batch_bytes, synced=True)


def produce_targets(stream: Stream) -> list[Target]:
    """Return the targets for producing; there are none for 10 KB records."""
    if stream.synced:
        return [Target("MB/s", "MB/s", least=500 if stream.batch_bytes == 16_384 else 1000)]
    if stream.record_bytes == 100:
        return [Target("records/s", "records/s", least=2e6)]
    if stream.record_bytes == 1000 and stream.batch_bytes == 16_384:
        return [Target("MB/s", "MB/s", least=600), Target("broker us/MB", "us/MB", most=900)]
    if stream.record_bytes == 1000:
        return [Target("MB/s", "MB/s", least=1300), Target("broker us/MB", "us/MB", most=450)]
    return []


def consume_targets(stream: Stream) -> list[Target]:
    """Return the targets for consuming; there are some for 1 KB records only."""
    if stream.record_bytes != 1000:
        return []
    return [Target("MB/s", "MB/s", least=1200), Target("broker us/MB", "us/MB", most=350)]


def latency_targets(records_per_s: int) -> list[Target]:
    """Return the targets for latency; there are some for 1,000 records/s only."""
    if records_per_s != 1000:
        return []
    return [Target("p50 ms", "ms at p50", most=0.2), Target("p99 ms", "ms at p99", most=1.5)]


def with_verdict(row: dict[str, Any], targets: list[Target]) -> dict[str, Any]:
    """Return the row with two more columns: the target, and whether it is met."""
    missed = [target for target in targets if not target.met(row[target.name])]
    verdict = "" if not targets else "pass" if not missed else "missed: " + ", ".join(each.name for each in missed)
    return {**row, "target": ", ".join(map(str, targets)), "": verdict}


def median(samples: list[Measurement], figure: Callable[[Measurement], float]) -> float:
    return statistics.median(map(figure, samples))


class Bench:
    """Measures one broker."""

    def __init__(self, broker: BrokerProcess, driver: Driver, scale: Scale) -> None:
        self._broker = broker
        self._driver = driver
        self._scale = scale
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._topic_count = 0

    def rows(self) -> list[dict[str, Any]]:
        """Run all measurements."""
        return [*self.throughput(), *self.latency(), *self.tiny_requests(), self.idle_connections()]

    def throughput(self) -> list[dict[str, Any]]:
        """Write and read back all streams in turn, several times."""
        cases = list(streams(self._scale))
        produced: dict[Stream, list[Measurement]] = {case: [] for case in cases}
        consumed: dict[Stream, list[Measurement]] = {case: [] for case in cases}
        for _ in range(self._scale.repetitions):
            for case in cases:
                wrote, read = self._write_and_read(case)
                produced[case].append(wrote)
                consumed[case].append(read)
        written = {case: _stream_row("produce, acks=1", case, samples) for case, samples in produced.items()}
        read_back = {
            case: _stream_row("consume", case, samples) for case, samples in consumed.items() if not case.synced
        }
        return [
            *(with_verdict(row, produce_targets(case)) for case, row in written.items()),
            *(with_verdict(row, consume_targets(case)) for case, row in read_back.items()),
        ]

    def _write_and_read(self, case: Stream) -> tuple[Measurement, Measurement]:
        # For small records, the client's cost dominates the broker's; a fraction of them is enough.
        size = self._scale.megabytes * MB // (4 if case.record_bytes == 100 else 1)
        topic = self._new_topic(case.partitions, {"flush.messages": "1"} if case.synced else {})
        try:
            wrote = measure(
                self._driver,
                self._broker,
                "produce",
                *(topic, case.partitions, case.record_bytes, case.batch_bytes, size, 1),
                before=lambda: self._write_ahead(topic, case, size + size // 8),
            )
            records = wrote.load["messages"]
            read = measure(self._driver, self._broker, "consume", topic, case.partitions, records, FETCH_BYTES)
        finally:
            self._remove_topic(topic)
        return wrote, read

    def _write_ahead(self, topic: str, case: Stream, size_bytes: int) -> None:
        for partition in range(case.partitions):
            (log,) = self._broker.directory.glob(f"**/{topic}-{partition}/{FIRST_SEGMENT}")
            write_ahead(log, size_bytes // case.partitions, sync=case.synced)

    def latency(self) -> list[dict[str, Any]]:
        """Measure the time from the producer's call to the consumer's, at two rates."""
        samples: dict[int, list[Measurement]] = {1000: [], 5000: []}
        for _ in range(self._scale.repetitions):
            for rate, measurements in samples.items():
                topic = self._new_topic(1, {})
                measurements.append(
                    measure(
                        self._driver,
                        self._broker,
                        "latency",
                        topic,
                        rate,
                        self._scale.latency_s,
                        100,
                        *LATENCY_SETTINGS,
                    )
                )
                self._remove_topic(topic)
        return [
            with_verdict(_latency_row(rate, measurements), latency_targets(rate))
            for rate, measurements in samples.items()
        ]

    def tiny_requests(self) -> list[dict[str, Any]]:
        """Pipeline produce requests with one small record each."""
        samples: dict[tuple[int, int], list[Measurement]] = {(1, 1): [], (1, 32): [], (64, 8): []}
        for _ in range(self._scale.repetitions):
            for (connections, window), measurements in samples.items():
                topic = self._new_topic(1, {})
                measurements.append(
                    measure(self._driver, self._broker, "tiny", topic, connections, window, self._scale.tiny_s)
                )
                self._remove_topic(topic)
        target = [Target("per core", "requests/s per core", least=150_000)]
        return [
            with_verdict(_tiny_row(connections, window, measurements), target if window > 1 else [])
            for (connections, window), measurements in samples.items()
        ]

    def idle_connections(self) -> dict[str, Any]:
        """Measure connections whose only request was ApiVersions."""
        count = min(self._scale.idle_connections, allow_files() - 100)
        before_mb = self._broker.resident_mb()
        clients = []
        try:
            for _ in range(count):
                clients.append(RawClient(self._broker.port))
                clients[-1].request_versions()
            resident_mb = self._broker.resident_mb() - before_mb
            cpu_s = self._broker.cpu_s()
            time.sleep(IDLE_S)
            cpu_percent = (self._broker.cpu_s() - cpu_s) / IDLE_S * 100
        finally:
            for client in clients:
                client.close()
        row = {
            "idle connections": count,
            "KB each": resident_mb * 1000 / count,
            "MB for 10,000": resident_mb / count * 10_000,
            "CPU %": cpu_percent,
        }
        targets = [Target("MB for 10,000", "MB for 10,000", most=30), Target("CPU %", "% CPU", most=1)]
        return with_verdict(row, targets)

    def _new_topic(self, partitions: int, config: dict[str, str]) -> str:
        self._topic_count += 1
        name = f"bench-{self._topic_count}"
        for future in self._admin.create_topics(
            [NewTopic(name, partitions, 1, config=config)], operation_timeout=10
        ).values():
            future.result(20)
        return name

    def _remove_topic(self, name: str) -> None:
        for future in self._admin.delete_topics([name], operation_timeout=10).values():
            future.result(20)


def _stream_row(what: str, case: Stream, samples: list[Measurement]) -> dict[str, Any]:
    rates = [each.load.get("timed_bytes", each.load["bytes"]) / MB / each.load["seconds"] for each in samples]
    return {
        what: str(case),
        "MB/s": statistics.median(rates),
        "records/s": statistics.median(rates) * MB / case.record_bytes,
        "lowest to highest": f"{min(rates):,.0f} to {max(rates):,.0f}",
        "broker us/MB": median(samples, lambda each: each.broker_cpu_s * 1e6 / (each.load["bytes"] / MB)),
        "client us/MB": median(samples, lambda each: each.load["client_cpu_s"] * 1e6 / (each.load["bytes"] / MB)),
    }


def _latency_row(rate: int, samples: list[Measurement]) -> dict[str, Any]:
    names = {"p50 ms": "p50_us", "p90 ms": "p90_us", "p99 ms": "p99_us", "p99.9 ms": "p999_us"}
    quantiles = {name: statistics.median(each.load[key] / 1000 for each in samples) for name, key in names.items()}
    cpu = median(samples, lambda each: each.broker_cpu_s * 1e6 / each.load["messages"])
    return {"producer to consumer": f"{rate:,} records/s", **quantiles, "broker us/record": cpu}


def _tiny_row(connections: int, window: int, samples: list[Measurement]) -> dict[str, Any]:
    cost_us = median(samples, lambda each: each.broker_cpu_s * 1e6 / each.load["messages"])
    return {
        "tiny produce requests": f"{connections} x {window} in flight",
        "requests/s": median(samples, lambda each: each.load["messages"] / each.load["seconds"]),
        "broker us/request": cost_us,
        "per core": 1e6 / cost_us,
    }


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Start a broker and measure it.

    :return: rows of five tables.
    """
    driver = find_driver()
    if driver.note is not None:
        print(driver.note, file=sys.stderr)
    try:
        with BrokerProcess(OVERRIDES) as broker:
            broker.wait_until_ready()
            return Bench(broker, driver, SCALES[scale]).rows()
    finally:
        remove_driver(driver)
