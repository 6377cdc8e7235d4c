"""Client libraries with one broker process: kreplica's, aiokafka, kafka-python, and confluent-kafka for reference.

Each library has its own process, which is new in every round.  Within a round, the libraries alternate in each case, so
that a slow minute of the machine affects them all; values are medians of the rounds.  Batch sizes, linger, acks,
in-flight requests and fetch settings are the same wherever a library supports them (``client_load.Case``); aiokafka
always has one Produce request per broker in flight.  Every record that is read is accessed.  CPU time is that of the
client process with all its threads.

* ``aiokafka`` encodes and decodes records with its Cython extension; ``aiokafka (pure)`` does so in Python
  (``AIOKAFKA_NO_EXTENSIONS``), including checksums.
* ``produce, record by record``: each record has a Deferred, a future or a callback.  ``all at once``: ``send_all``,
  aiokafka's ``send_batch`` (one future for a batch, whose partition the caller chooses), confluent-kafka without
  callbacks; kafka-python has no such method.
* ``kreplica`` encodes and decodes records with its kernels if they are compiled; ``kreplica (pure)`` does so in Python
  (``KREPLICA_KERNELS=no``).  kafka-python has no extension.  The other libraries compute checksums in C: kafka-python
  uses the ``crc32c`` package that kreplica installs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker_process import ROOT, BrokerProcess
from benchmarks.client_load import CHUNK, Case, line_of, make_values

PARTITIONS = 4
ROUNDS = 5
RECORDS = {(100, False): "100 B", (100, True): "50 to 150 B", (1000, False): "1 KB"}
BATCH_BYTES = {16 << 10: "16 KB", 128 << 10: "128 KB"}
RATIO_MIN = 2.0
OVERRIDES = {"log.segment.delete.delay.ms": "0"}
LIBRARIES = {
    "kreplica": ("kreplica", {}),
    "kreplica (pure)": ("kreplica", {"KREPLICA_KERNELS": "no"}),
    "aiokafka": ("aiokafka", {}),
    "aiokafka (pure)": ("aiokafka", {"AIOKAFKA_NO_EXTENSIONS": "1"}),
    "kafka-python": ("kafka_python", {}),
    "confluent-kafka": ("confluent", {}),
}
OURS = "kreplica"
TO_BEAT = ("aiokafka", "kafka-python")
STYLES = {
    ("produce", "record"): "produce, record by record",
    ("produce", "batch"): "produce, all at once",
    ("consume", "record"): "consume, record by record",
    ("consume", "batch"): "consume, batch by batch",
}


@dataclass(frozen=True)
class Scale:
    """Amount of work.

    :param seconds: duration of one case with one library.
    :param filled: size in bytes of a topic that is read.
    :param libraries: libraries that are measured.
    :param styles: styles of the producers' calls.
    """

    seconds: float
    batch_bytes: tuple[int, ...]
    acks: tuple[int, ...]
    filled: int
    libraries: tuple[str, ...] = tuple(LIBRARIES)
    styles: tuple[str, ...] = ("record", "batch")


QUICK_LIBRARIES = (OURS, "kreplica (pure)", *TO_BEAT, "confluent-kafka")
SCALES = {
    "quick": Scale(0.5, (16 << 10,), (-1,), 60_000_000, QUICK_LIBRARIES, ("record",)),
    "full": Scale(0.8, tuple(BATCH_BYTES), (1, -1), 150_000_000),
}


class Load:
    """Process of one library."""

    def __init__(self, name: str) -> None:
        module, environment = LIBRARIES[name]
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client_load", module],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, case: Case) -> dict[str, Any]:
        """Measure one case.

        :raise RuntimeError: the library failed; its output is on standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line_of(case))
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} could not {case.what}: {case}")
        return dict(json.loads(line))


class Topics:
    """Empty topics for producers, deleted after use, and full topics for consumers."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._count = 0

    def make(self) -> str:
        """Create an empty topic."""
        self._count += 1
        name = f"load-{self._count}"
        for made in self._admin.create_topics([NewTopic(name, PARTITIONS, 1)], operation_timeout=10).values():
            made.result(20)
        return name

    def remove(self, name: str) -> None:
        """Delete a topic and free its pages."""
        for removed in self._admin.delete_topics([name], operation_timeout=10).values():
            removed.result(20)

    def make_full(self, record_bytes: int, batch_bytes: int, size: int, *, varied: bool) -> str:
        """Create a topic with records in batches of this size, written by a library that is not measured."""
        name = self.make()
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "batch.size": batch_bytes,
                "batch.num.messages": 1_000_000,
                "linger.ms": 100,
                "log_level": 0,
            }
        )
        values = make_values(record_bytes, varied=varied)
        for number in range(size // record_bytes):
            while True:
                try:
                    producer.produce(name, values[number % CHUNK], partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.005)
        producer.flush(60)
        return name


def cases(topics: Topics, scale: Scale) -> Iterator[Case]:
    """Return the cases for each library; a consumer's case names its topic, a producer's case needs a new one."""
    for record_bytes, varied in RECORDS:
        for batch_bytes in scale.batch_bytes:
            common: dict[str, Any] = {
                "bootstrap": topics.bootstrap,
                "partitions": PARTITIONS,
                "seconds": scale.seconds,
                "record_bytes": record_bytes,
                "varied": varied,
                "batch_bytes": batch_bytes,
            }
            for acks, style in product(scale.acks, scale.styles):
                yield Case(what="produce", style=style, topic="", acks=acks, **common)
            full = topics.make_full(record_bytes, batch_bytes, scale.filled, varied=varied)
            for style in ("record", "batch"):
                yield Case(what="consume", style=style, topic=full, **common)


def measure(scale: Scale, rounds: int) -> dict[Case, dict[str, list[dict[str, Any]]]]:
    """Run all cases with all libraries once per round: case -> library -> reports in the order of the rounds."""
    reports: dict[Case, dict[str, list[dict[str, Any]]]] = {}
    with BrokerProcess(OVERRIDES) as broker:
        broker.wait_until_ready()
        topics = Topics(broker.bootstrap)
        wanted = list(cases(topics, scale))
        for number in range(rounds):
            with ExitStack() as stack:
                loads = {name: stack.enter_context(Load(name)) for name in _turns(scale.libraries, number)}
                for case in wanted:
                    for name, load in loads.items():
                        report = _run(load, case, topics)
                        reports.setdefault(case, {}).setdefault(name, []).append(report)
    return reports


def _turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Return the libraries in the order for a round: each is first in one round, and last in another."""
    first = number % len(names)
    return names[first:] + names[:first]


def _run(load: Load, case: Case, topics: Topics) -> dict[str, Any]:
    if case.topic:
        return load.run(case)
    topic = topics.make()
    try:
        return load.run(replace(case, topic=topic))
    finally:
        topics.remove(topic)


def rows_of(case: Case, reports: dict[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Return a row for each library."""
    ours = reports[OURS]
    ours_s = _cpu_s(ours)
    for name, measurements in sorted(reports.items(), key=lambda pair: list(LIBRARIES).index(pair[0])):
        cpu_s = _cpu_s(measurements)
        rates = [_rate(each) for each in measurements]
        ratio = statistics.median(_rate(mine) / rate for mine, rate in zip(ours, rates, strict=True))
        rate = statistics.median(rates)
        bar = name in TO_BEAT and (case.what, case.style) != ("produce", "batch")
        yield {
            "case": _title(case),
            "library": name,
            "records/s": rate,
            "lowest to highest": f"{min(rates):,.0f} to {max(rates):,.0f}",
            "MB/s": statistics.median(each["bytes"] / each["seconds"] for each in measurements) / 1e6,
            "CPU s per million": cpu_s,
            "of kreplica's": f"{cpu_s / ours_s:.2f} x",
            "kreplica is as fast": f"{ratio:.2f} x",
            "target": f">= {RATIO_MIN:g} x" if bar else "",
            "": "" if not bar else "pass" if ratio >= RATIO_MIN else "missed",
        }


def _cpu_s(reports: list[dict[str, Any]]) -> float:
    return statistics.median(each["cpu_s"] / each["records"] * 1e6 for each in reports)


def _rate(report: dict[str, Any]) -> float:
    return float(report["records"] / report["seconds"])


def _title(case: Case) -> str:
    record = RECORDS[case.record_bytes, case.varied]
    title = f"{STYLES[case.what, case.style]}, {record} in {BATCH_BYTES[case.batch_bytes]}"
    return title if case.what == "consume" else f"{title}, acks={'all' if case.acks == -1 else case.acks}"


def run(scale: str = "quick", rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Start a broker, and let the libraries write and read.

    :param rounds: number of rounds for the medians.
    """
    reports = measure(SCALES[scale], rounds)
    return [row for case, by_library in reports.items() for row in rows_of(case, by_library)]
