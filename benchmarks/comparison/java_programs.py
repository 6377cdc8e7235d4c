"""Kafka's own performance programs, which are written in Java: command lines and parsers of their reports.

The programs are those of Kafka 3.9 for all systems.  Their megabytes are 2^20 bytes; those of this module are 10^6.
"""

from __future__ import annotations

import re
import resource
import subprocess
from dataclasses import dataclass

from tests.interop import apache_kafka

PACKAGE = "org.apache.kafka.tools"
# The flags of kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh.
FLAGS = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
         "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Duser.language=en",
         "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")  # fmt: skip
TIME_S_MAX = 300
MB, MIB = 1_000_000, 1 << 20

_PRODUCED = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)
_END_TO_END = re.compile(r"Avg latency: ([\d.]+) ms\s+Percentiles: 50th = (\d+), 99th = (\d+), 99.9th = (\d+)")


@dataclass(frozen=True)
class Report:
    """Result of one run of a program.

    :param figures: the values that it printed, by name with unit.
    :param client_cpu_s: CPU time of its process, including the start of the virtual machine.
    """

    figures: dict[str, float]
    client_cpu_s: float


def produce(
    bootstrap: str, topic: str, *, records: int, record_bytes: int, acks: int, batch_bytes: int, linger_ms: int
) -> Report:
    """Run ``ProducerPerformance`` at full speed."""
    output, cpu_s = _run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", records, "--record-size", record_bytes, "--throughput", -1),
        *("--producer-props", f"bootstrap.servers={bootstrap}", f"acks={acks}", f"batch.size={batch_bytes}"),
        f"linger.ms={linger_ms}",
    )
    return Report(parse_produced(output), cpu_s)


def consume(bootstrap: str, topic: str, records: int) -> Report:
    """Run ``ConsumerPerformance`` from the start of a topic."""
    output, cpu_s = _run(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", records, "--timeout", 60_000),
    )
    return Report(parse_consumed(output), cpu_s)


def end_to_end(bootstrap: str, topic: str, *, records: int, record_bytes: int, acks: int) -> Report:
    """Run ``EndToEndLatency``, which sends one record at a time and waits until it has read it."""
    output, cpu_s = _run("EndToEndLatency", bootstrap, topic, records, "all" if acks < 0 else acks, record_bytes)
    return Report(parse_end_to_end(output), cpu_s)


def parse_produced(output: str) -> dict[str, float]:
    """Return the rate and the latencies in the last line of ``ProducerPerformance``.

    :raise ValueError: there is no such line; the message contains the output.
    """
    lines = _PRODUCED.findall(output)
    if not lines:
        raise ValueError(f"ProducerPerformance reported no result: {output[-2000:]}")
    _, _, rate, average_ms, _, p50_ms, _, p99_ms, _ = map(float, lines[-1])
    return {"MB/s": rate * MIB / MB, "average ms": average_ms, "p50 ms": p50_ms, "p99 ms": p99_ms}


def parse_consumed(output: str) -> dict[str, float]:
    """Return the rate that ``ConsumerPerformance`` reports for the time after the first rebalance.

    :raise ValueError: there is no result; the message contains the output.
    """
    lines = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.count(",") > 8]
    if len(lines) < 2:
        raise ValueError(f"ConsumerPerformance reported no result: {output[-2000:]}")
    row = dict(zip(lines[-2], lines[-1], strict=True))
    return {"MB/s": float(row["fetch.MB.sec"]) * MIB / MB}


def parse_end_to_end(output: str) -> dict[str, float]:
    """Return the average latency, and the percentiles, which are whole milliseconds.

    :raise ValueError: there is no result; the message contains the output.
    """
    match = _END_TO_END.search(output)
    if match is None:
        raise ValueError(f"EndToEndLatency reported no result: {output[-2000:]}")
    average, p50, p99, _ = map(float, match.groups())
    return {"average ms": average, "p50 ms": p50, "p99 ms": p99}


def _run(program: str, *arguments: object) -> tuple[str, float]:
    """Run a program to its end.

    :return: its output, and the CPU time of its process.
    :raise RuntimeError: the program failed; the message contains its output.
    """
    command = ["java", *FLAGS, "-cp", apache_kafka.class_path(), f"{PACKAGE}.{program}", *map(str, arguments)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_S_MAX, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        output = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(f"{program} exited with status {done.returncode}: {output}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu_s
