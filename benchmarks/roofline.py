"""A model of the rate on many cores: CPU time of brokers and clients, and memory bandwidth; checked with 1 and 2 cores.

Everything is measured on one core first: the CPU time of a broker and of its clients per produced megabyte, and the
bandwidth of copying memory.  Brokers share only memory and the kernel, so n cores with a broker process on each should
do n times the work, until the memory bandwidth is exhausted.  The model assumes that each produced byte moves
``BYTES_MOVED`` bytes of memory.  The rate on two cores is predicted from these figures and then measured; the deviation
shows how far the model can be trusted.  The rows with more cores are predictions for a machine with the same cores.
Their memory limit is a range: from the measured bandwidth of this machine, as if further cores added none, to the
bandwidth of one core times the number of cores.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker import BATCHES
from benchmarks.broker_process import SCRATCH
from benchmarks.cores import APART, CASES, ONE, Cluster, Written, write
from benchmarks.driver import Driver, find_driver, remove_driver

BYTES_MOVED = 7
"""Bytes read or written per produced byte: the kernel copies it from the socket and into the page cache, each with a
read, a write and the read of the destination's cache line, and the checksum reads it."""

PREDICTED_CORES = (4, 8, 16)
COPY_BYTES = 1 << 26
REPETITIONS = {"quick": 3, "full": 7}


@dataclass(frozen=True)
class Costs:
    """Measured costs.

    :param broker_us: CPU time of brokers per MB.
    :param client_us: CPU time of clients per MB.
    :param one_core_copy: bandwidth of one core in MB/s, read and written bytes together.
    :param machine_copy: bandwidth of all cores of this machine together.
    """

    broker_us: float
    client_us: float
    one_core_copy: float
    machine_copy: float


def predicted_rate(costs: Costs, cores: int, *, has_clients: bool) -> float:
    """Return the MB/s that the processors allow, with a broker on each core.

    :param has_clients: True if the clients run on the same cores.
    """
    return cores * 1e6 / (costs.broker_us + (costs.client_us if has_clients else 0.0))


def memory_limits(costs: Costs, cores: int) -> tuple[float, float]:
    """Return the MB/s that the memory allows: with the bandwidth of this machine, and if it grows with the cores."""
    return costs.machine_copy / BYTES_MOVED, max(costs.machine_copy, costs.one_core_copy * cores) / BYTES_MOVED


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure with one core and with two, and predict the rates with more.

    :return: a row for each batch size and number of cores.
    """
    driver = find_driver()
    if driver.note is not None:
        print(driver.note, file=sys.stderr)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    try:
        one_core_copy, machine_copy = copy_bandwidth(1), copy_bandwidth(2)
        rows = []
        for batch_bytes in (16_384, 131_072):
            with one_core():
                single = measure(driver, ONE, batch_bytes, REPETITIONS[scale])
            costs = Costs(_median(single, "broker_us_per_mb"), _median(single, "client_us_per_mb"), one_core_copy,
                          machine_copy)  # fmt: skip
            double = measure(driver, APART, batch_bytes, REPETITIONS[scale])
            measured = {1: _median(single, "rate"), 2: _median(double, "rate")}
            rows += [row(batch_bytes, costs, cores, measured.get(cores)) for cores in (1, 2, *PREDICTED_CORES)]
        return rows
    finally:
        remove_driver(driver)


def row(batch_bytes: int, costs: Costs, cores: int, measured: float | None) -> dict[str, Any]:
    """Return one row of the result."""
    together = predicted_rate(costs, cores, has_clients=True)
    low, high = memory_limits(costs, cores)
    return {
        "produce, acks=1, 1 KB": f"{BATCHES[batch_bytes]} batches, {cores} core{'s' if cores > 1 else ''}",
        "measured MB/s": measured,
        "predicted MB/s": together,
        "measured / predicted": None if measured is None else measured / together,
        "predicted, clients elsewhere": predicted_rate(costs, cores, has_clients=False),
        "memory limit": f"{low:,.0f} to {high:,.0f}",
        "broker us/MB": costs.broker_us,
        "client us/MB": costs.client_us,
    }


def measure(driver: Driver, case: str, batch_bytes: int, repetitions: int) -> list[Written]:
    """Write to the brokers of one installation."""
    brokers, arguments = CASES[case]
    with TemporaryDirectory(prefix="roofline-", dir=SCRATCH, ignore_cleanup_errors=True) as name, ExitStack() as stack:
        cluster = stack.enter_context(Cluster(Path(name), brokers, arguments))
        write(cluster, driver, batch_bytes, 100)  # warms up
        return [write(cluster, driver, batch_bytes, 400) for _ in range(repetitions)]


@contextmanager
def one_core() -> Iterator[None]:
    """Run this process, and processes that it starts in the block, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def copy_bandwidth(processes: int) -> float:
    """Return the MB/s that processes read and write together when they copy memory."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(_copied, [0.2] * processes))  # starts the processes
        return sum(pool.map(_copied, [2.0] * processes))


def _copied(seconds: float) -> float:
    """Copy memory for some time, and return the MB/s; each byte is read, and its copy is read and written."""
    source, target = memoryview(bytearray(COPY_BYTES)), memoryview(bytearray(COPY_BYTES))
    started_s, copies = time.monotonic(), 0
    while time.monotonic() - started_s < seconds:
        target[:] = source
        copies += 1
    return 3 * copies * COPY_BYTES / 1e6 / (time.monotonic() - started_s)


def _median(written: list[Written], name: str) -> float:
    return statistics.median(getattr(each, name) for each in written)
