"""Time from the start of the process to the first acknowledged record, and memory usage at that time."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_process import SCRATCH, START_TIME_S, BrokerProcess
from benchmarks.raw_client import RawClient

TARGET_S = 1.0
TARGET_MB = 80.0
TOPIC = b"first"
POLL_S = 0.002


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Start brokers with empty directories, and again with the resulting directories.

    :return: a row of medians for each of the two cases.
    """
    repetitions = 3 if scale == "quick" else 7
    fresh: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    SCRATCH.mkdir(parents=True, exist_ok=True)
    for _ in range(repetitions):
        with TemporaryDirectory(prefix="start-", dir=SCRATCH) as directory:
            for samples in (fresh, again):
                with BrokerProcess(directory=Path(directory)) as broker:
                    samples.append((first_record_s(broker), broker.resident_mb()))
    return [_row("empty directory", fresh), _row("started again", again)]


def first_record_s(broker: BrokerProcess) -> float:
    """Produce until the broker has acknowledged a record; return the time since the start of its process.

    :raise RuntimeError: this takes too long, or the process exited.
    """
    response: object = "no process listens on the port"
    while time.monotonic() - broker.started_s < START_TIME_S:
        broker.check_running()
        try:
            client = RawClient(broker.port)
        except OSError:
            time.sleep(POLL_S)
            continue
        try:
            client.request_topic(TOPIC)
            response = client.produce(TOPIC, b"x")
            if response == 0:
                return time.monotonic() - broker.started_s
        except OSError as error:
            response = error
        finally:
            client.close()
        time.sleep(POLL_S)
    raise RuntimeError(f"no record was acknowledged in {START_TIME_S} s; the last error: {response}\n{broker.output()}")


def _row(case: str, samples: list[tuple[float, float]]) -> dict[str, Any]:
    seconds = statistics.median(taken for taken, _ in samples)
    resident_mb = statistics.median(size for _, size in samples)
    passed = seconds <= TARGET_S and resident_mb <= TARGET_MB
    return {
        "start": case,
        "first record acknowledged, s": seconds,
        "worst, s": max(taken for taken, _ in samples),
        "resident then, MB": resident_mb,
        "target": f"{TARGET_S:g} s, {TARGET_MB:g} MB",
        "": "pass" if passed else "missed",
    }
