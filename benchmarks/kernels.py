"""CPU time in us with the kernels in C, and with the Python code that they replace (decision 79).

For the rows `in process`, both run in turn in the benchmark's process, without writing to the log's file; values are
the lowest CPU time of all rounds, because other programs affect it least.  For the other rows, two brokers, one of them
with ``KREPLICA_KERNELS=no``, receive the same load in turn; values are medians of the CPU time per request or per MB,
including time in the operating system.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.broker_process import BrokerProcess
from benchmarks.driver import Driver, find_driver, measure, remove_driver
from benchmarks.efficiency import OVERRIDES, Kreplica, sample
from kreplica.client.consumer.fetch_buffer import FetchBuffer
from kreplica.client_core.fetched_batches import FetchedRecords
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Buffer
from kreplica.spark.source.decoding import decode, open_section
from kreplica.storage import Log, LogConfig
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_all_as_leader, append_as_follower
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire import kernels
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import HEADER_SIZE, parse_header, stamp
from kreplica.wire.producer_batches import build_producer_batch
from kreplica.wire.record_validation import check_records
from kreplica.wire.records import Record

NAMES = ("place_batches", "index_batches", "scan_batches", "read_rows", "read_batches", "check_records",
         "encode_records", "decode_columns")  # fmt: skip
KEY = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2**31 - 1)
MB = 1_000_000
MEGABYTES = 100
TINY_S = 1
ROUND_S = 0.02
ROUNDS = {"quick": 5, "full": 15}

Action = Callable[[], object]


class Work(NamedTuple):
    """Work that is measured in this process.

    :param parts: number of batches or records that one call handles.
    """

    title: str
    parts: int
    make: Callable[[], Action]


class DiscardingDisk(MemoryDisk):
    """Disk that accepts writes and discards the data."""

    def write(self, content: Any, path: str, position: int, piece: Buffer) -> None:
        """Do nothing."""


def make_batch(count: int, size: int, key: bytes | None = None, codec: int = 0) -> bytes:
    values = random.Random(1)
    records = [Record(NEXT_OFFSET, NOW_MS, key, values.randbytes(size)) for _ in range(count)]
    return build_batch(records, codec=codec)


def make_log() -> Log:
    disk = DiscardingDisk(directories=["/data"])
    return LogToOpen("/data/orders-0", KEY, CONFIG, disk, lambda: NOW_MS).open()[0]


def leader(count: int, size: int, run: int) -> Action:
    """Return a function that appends a run of batches as leader."""
    log, batches = make_log(), [memoryview(bytearray(make_batch(count, size))) for _ in range(run)]
    return lambda: append_all_as_leader(log, batches, 0, now_ms=NOW_MS)


def follower(count: int, size: int, run: int) -> Action:
    """Return a function that appends the batches of one response as follower, after setting their offsets."""
    log, batch = make_log(), make_batch(count, size)
    data = bytearray(batch * run)

    def append() -> None:
        for number in range(run):
            stamp(data, log.log_end_offset + number * count, 0, number * len(batch))
        append_as_follower(log, data, now_ms=NOW_MS)

    return append


def consumer(count: int, size: int, run: int, key: bytes | None = None, codec: int = 0) -> Action:
    """Return a function that decodes one response."""
    batch = make_batch(count, size, key, codec)
    data = bytearray(batch * run)
    for number in range(run):
        stamp(data, number * count, 0, number * len(batch))
    fetched = FetchedRecords(KEY, memoryview(bytes(data)), 0, run * count)

    def decode() -> None:
        buffer = FetchBuffer()
        buffer.add(fetched)
        while not buffer.is_empty:
            buffer.take(0)

    return decode


def spark(count: int, size: int, run: int) -> Action:
    """Return a function that decodes batches to Arrow columns."""
    batch = make_batch(count, size, b"k" * 10)
    sections = [open_section(parse_header(batch), memoryview(batch))] * run
    return partial(decode, sections)


def validation(count: int, size: int) -> Action:
    batch = make_batch(count, size)
    return partial(check_records, batch[HEADER_SIZE:], parse_header(batch))


def producer(count: int, size: int, key: bytes | None, step_ms: int) -> Action:
    columns = ([NOW_MS + step_ms * number for number in range(count)], [key] * count, [bytes(size)] * count)
    return lambda: build_producer_batch(*columns, [()] * count, 0)


WORKS = (
    Work("append a 100 B batch, 40 in one read", 40, lambda: leader(1, 100, 40)),
    Work("append a 16 K batch, alone", 1, lambda: leader(16, 1000, 1)),
    Work("append a 16 K batch, 4 in one read", 4, lambda: leader(16, 1000, 4)),
    Work("append a 128 K batch, alone", 1, lambda: leader(128, 1000, 1)),
    Work("follower: append a 16 K batch, 64 in one response", 64, lambda: follower(16, 1000, 64)),
    Work("follower: append a 100 B batch, 500 in one response", 500, lambda: follower(1, 100, 500)),
    Work("validate a 100 B record of a compressed batch", 150, lambda: validation(150, 100)),
    Work("consumer: decode a 100 B record", 3000, lambda: consumer(150, 100, 20)),
    Work("consumer: decode a 100 B record with a key", 3000, lambda: consumer(150, 100, 20, b"k" * 10)),
    Work("consumer: decode a 1 KB record", 320, lambda: consumer(16, 1000, 20)),
    Work("Spark: decode a 100 B record", 7500, lambda: spark(150, 100, 50)),
    Work("Spark: decode a 1 KB record", 960, lambda: spark(16, 1000, 60)),
    Work("producer: encode a 100 B record", 150, lambda: producer(150, 100, None, 0)),
    Work("producer: encode a 100 B record with a key", 150, lambda: producer(150, 100, b"k" * 10, 1)),
    Work("producer: encode a 1 KB record", 16, lambda: producer(16, 1000, None, 0)),
)


def in_process(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each item of work."""
    for work in WORKS:
        best = {"Python": float("inf"), "C": float("inf")}
        actions = {name: work.make() for name in best}
        for _ in range(rounds):
            with ExitStack() as stack:
                best["C"] = min(best["C"], cost_us(actions["C"]))
                for name in NAMES:
                    stack.enter_context(patch.object(kernels, name, None))
                best["Python"] = min(best["Python"], cost_us(actions["Python"]))
        yield row("in process", work.title, best["Python"] / work.parts, best["C"] / work.parts)


def cost_us(action: Action) -> float:
    """Return the CPU time of one call of a function."""
    action()
    count, begun_s = 0, time.process_time()
    while (passed_s := time.process_time() - begun_s) < ROUND_S:
        action()
        count += 1
    return passed_s / count * 1e6


def row(place: str, title: str, python: float, kernel: float) -> dict[str, Any]:
    return {"CPU time in us": place, "of": title, "Python": python, "C": kernel, "C / Python": kernel / python}


def on_brokers(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each load on the two brokers."""
    program = str(Path(sys.executable).with_name("twistd"))
    costs_by_title: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        driver = find_driver()
        stack.callback(remove_driver, driver)
        targets = {}
        for name, setting in (("Python", "no"), ("C", "yes")):
            launcher = ("env", f"KREPLICA_KERNELS={setting}", program)
            broker = stack.enter_context(BrokerProcess(OVERRIDES, launcher=launcher))
            broker.wait_until_ready()
            targets[name] = Kreplica(broker)
        for number in range(rounds):
            for name in sorted(targets, reverse=bool(number % 2)):
                for title, cost in loads(driver, targets[name]):
                    costs_by_title.setdefault(title, {}).setdefault(name, []).append(cost)
    for title, costs in costs_by_title.items():
        yield row("of a broker", title, statistics.median(costs["Python"]), statistics.median(costs["C"]))


def loads(driver: Driver, target: Kreplica) -> Iterator[tuple[str, float]]:
    """Run each load once, and yield its title and its cost."""
    for batch_bytes, title in ((16_384, "16 K"), (131_072, "128 K")):
        yield f"1 MB in {title} batches", sample(driver, target, batch_bytes, MEGABYTES * MB).cpu_us_per_mb
    with target.topic() as (broker, topic, _):
        config = {"compression.codec": "lz4"}
        got = measure(driver, broker, "produce", topic, 1, 100, 16_384, MEGABYTES * MB // 10, 1, client_config=config)
        yield "1 MB of 100 B records in lz4 batches", got.broker_cpu_s * 1e6 / (got.load["bytes"] / MB)
    for connections, window in ((1, 1), (1, 32), (64, 8)):
        with target.topic() as (broker, topic, _):
            got = measure(driver, broker, "tiny", topic, connections, window, TINY_S)
        title = f"a tiny Produce request, {connections} x {window} in flight"
        yield title, got.broker_cpu_s * 1e6 / got.load["messages"]


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure both implementations.

    :raise RuntimeError: the kernels are not compiled.
    """
    if kernels.place_batches is None:
        raise RuntimeError("the kernels are not compiled, or disabled by KREPLICA_KERNELS")
    return [*in_process(ROUNDS[scale]), *on_brokers(ROUNDS[scale])]
