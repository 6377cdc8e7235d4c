"""Benefit of a second core: one broker, two brokers in one process, and two in separate processes.

Two load generators write at the same time, each to its own partition; two brokers lead one partition each.  The three
installations run at the same time and receive load in turn, so that slow periods of the machine affect all of them.
The page cache is filled in advance (``driver.write_ahead``), and values are medians.  CPU time is the sum over all
processes of an installation, including the embedded ZooKeeper server; ``cores`` is this time per second of elapsed
time.  If a single broker uses much less than 1 core, other programs use the machine, and the ratios are not reliable.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker import BATCHES, FIRST_SEGMENT, MB, OVERRIDES
from benchmarks.broker_process import SCRATCH, cpu_s
from benchmarks.driver import Driver, find_driver, measure_together, remove_driver, write_ahead
from tests.support.standalone import StandaloneProcess

LOADS = 2
RECORD_BYTES = 1000
START_TIME_S = 120.0
TARGET = 1.9
"""Target ratio of the rate of two processes to that of one, with batches of 16 K."""

ONE, TOGETHER, APART = "1 broker", "2 brokers in 1 process", "2 brokers in 2 processes"
CASES: Mapping[str, tuple[int, tuple[str, ...]]] = {ONE: (1, ()), TOGETHER: (2, ()), APART: (2, ("--processes",))}
"""Number of brokers and additional arguments of the command, by installation."""


@dataclass(frozen=True)
class Scale:
    """Amount of work."""

    repetitions: int
    megabytes: int
    batches: tuple[int, ...]


SCALES = {"quick": Scale(3, 256, (16_384, 131_072)), "full": Scale(7, 400, tuple(BATCHES))}


class Cluster:
    """A standalone process under load.

    :ivar bootstrap: bootstrap servers for clients.
    """

    def __init__(self, directory: Path, brokers: int, arguments: tuple[str, ...]) -> None:
        overrides = [f"--override={name}={value}" for name, value in OVERRIDES.items()]
        self._process = StandaloneProcess(directory, brokers=brokers, arguments=(*arguments, *overrides))
        self._brokers = brokers
        self._topic_count = 0
        self.bootstrap = self._process.bootstrap_servers

    def __enter__(self) -> Cluster:
        self._process.start(START_TIME_S)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def cpu_s(self) -> float:
        """Return the CPU time, from the scheduler's statistics (nanoseconds, not ticks)."""
        return sum(map(cpu_s, (self._process.pid, *_children(self._process.pid))))

    def check_running(self) -> None:
        """Raise ``RuntimeError`` with the output of the process if it has exited."""
        if not self._process.running:
            raise RuntimeError(f"the brokers have exited:\n{self._process.output[-4000:]}")

    def new_topics(self) -> list[str]:
        """Create a topic with one partition for each load program, spread evenly over the brokers."""
        self._topic_count += 1
        names = [f"bench-{self._topic_count}-{load}" for load in range(LOADS)]
        topics = [NewTopic(name, 1, replica_assignment=[[1 + load % self._brokers]]) for load, name in enumerate(names)]
        for future in self._admin.create_topics(topics, operation_timeout=10).values():
            future.result(30)
        return names

    def write_ahead(self, topics: list[str], size: int) -> None:
        for topic in topics:
            (log,) = self._process.data_directory.glob(f"*/{topic}-0/{FIRST_SEGMENT}")
            write_ahead(log, size, sync=False)

    def remove(self, topics: list[str]) -> None:
        for future in self._admin.delete_topics(topics, operation_timeout=10).values():
            future.result(30)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass(frozen=True)
class Written:
    """Result of two load programs that wrote at the same time.

    :param rate: total rate in MB/s, until the last program had received all its acknowledgements.
    """

    rate: float
    broker_us_per_mb: float
    client_us_per_mb: float


def write(cluster: Cluster, driver: Driver, batch_bytes: int, megabytes: int) -> Written:
    """Write once to new topics.

    :param megabytes: amount of data per program.
    """
    size = megabytes * MB
    topics = cluster.new_topics()
    try:
        loads, broker_cpu_s = measure_together(
            driver,
            cluster,
            "produce",
            [(topic, 1, RECORD_BYTES, batch_bytes, size, 1) for topic in topics],
            before=lambda: cluster.write_ahead(topics, size + size // 8),
        )
    finally:
        cluster.remove(topics)
    total_mb = sum(load["bytes"] for load in loads) / MB
    return Written(
        total_mb / max(load["seconds"] for load in loads),
        broker_cpu_s * 1e6 / total_mb,
        sum(load["client_cpu_s"] for load in loads) * 1e6 / total_mb,
    )


def rows_of(batch_bytes: int, samples: Mapping[str, list[Written]]) -> list[dict[str, Any]]:
    """Return a row for each case; rates are compared with that of one broker."""
    base_rate = statistics.median(each.rate for each in samples[ONE])
    rows = []
    for case, written in samples.items():
        rates = [each.rate for each in written]
        times = statistics.median(rates) / base_rate
        is_judged = case == APART and batch_bytes == 16_384
        verdict = ("pass" if times >= TARGET else "missed") if is_judged else ""
        rows.append(
            {
                "produce, acks=1, two programs": f"1 KB in {BATCHES[batch_bytes]} batches, {case}",
                "MB/s": statistics.median(rates),
                "lowest to highest": f"{min(rates):,.0f} to {max(rates):,.0f}",
                "times one broker": times,
                "brokers us/MB": statistics.median(each.broker_us_per_mb for each in written),
                "brokers' cores": statistics.median(each.rate * each.broker_us_per_mb / 1e6 for each in written),
                "clients us/MB": statistics.median(each.client_us_per_mb for each in written),
                "target": f">= {TARGET:g} times" if is_judged else "",
                "": verdict,
            }
        )
    return rows


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Start all three installations, and load them in turn.

    :return: a row for each batch size and case.
    """
    size = SCALES[scale]
    driver = find_driver()
    if driver.note is not None:
        print(driver.note, file=sys.stderr)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix="cores-", dir=SCRATCH, ignore_cleanup_errors=True) as name, ExitStack() as stack:
            clusters = {
                case: stack.enter_context(Cluster(Path(name, str(number)), *how))
                for number, (case, how) in enumerate(CASES.items())
            }
            return _measured(clusters, driver, size)
    finally:
        remove_driver(driver)


def _measured(clusters: Mapping[str, Cluster], driver: Driver, scale: Scale) -> list[dict[str, Any]]:
    samples: dict[int, dict[str, list[Written]]] = {batch: {case: [] for case in CASES} for batch in scale.batches}
    for _ in range(scale.repetitions):
        for batch_bytes, of_cases in samples.items():
            for case, cluster in clusters.items():
                of_cases[case].append(write(cluster, driver, batch_bytes, scale.megabytes))
    return [row for batch_bytes, of_cases in samples.items() for row in rows_of(batch_bytes, of_cases)]
