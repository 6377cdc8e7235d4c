"""One log without a network: append, read of the tail, cold read, recovery, and the bare system calls.

Before each size is measured, a file of the log's full length is written and removed, so that the kernel already has the
memory for the page cache from the hypervisor. Appends and bare writes alternate.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import Log, LogConfig
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record

KEY = TopicPartition("benchmark", 0)
SIZES = {"16 KB": 16 * 1024, "128 KB": 128 * 1024, "1 MB": 1000 * 1024}
RECOVERY_TARGET_GB_S = 4.0


def run(quick: bool = True) -> list[dict[str, Any]]:
    """Measure all operations; values are medians of rounds in microseconds."""
    directory = tempfile.mkdtemp(prefix="kreplica-bench-")
    try:
        rows = [_append(directory, name, size, 24 if quick else 100) for name, size in SIZES.items()]
        return [*rows, *_read(directory), *_recover(directory, 256 if quick else 1024)]
    finally:
        shutil.rmtree(directory)


def _batch(size: int) -> bytearray:
    """Return a batch of about this many bytes, with records of 1 KB (or one smaller record)."""
    records = [Record(index, 1000, None, os.urandom(1000)) for index in range(max(size // 1016, 1))]
    return bytearray(build_batch(records))


def _open(directory: str, name: str) -> Log:
    return LogToOpen(f"{directory}/{name}-0", KEY, LogConfig(), OsDisk(), lambda: 1).open()[0]


def _touch(directory: str, size: int) -> None:
    """Write and remove a file, so that the kernel gets memory for the page cache from the hypervisor."""
    path = f"{directory}/touched"
    with open(path, "wb") as file:
        for _ in range(size // 2**20 + 1):
            file.write(bytes(2**20))
    os.remove(path)


def _each_us(work: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count * 1e6


def _append(directory: str, name: str, size: int, megabytes: int) -> dict[str, Any]:
    records = _batch(size)
    count = max(megabytes * 2**20 // 8 // len(records), 2)
    _touch(directory, 16 * count * len(records))
    log = _open(directory, f"append-{size}")
    bare = OsDisk().open(f"{directory}/bare", create=True)
    position = 0

    def write() -> None:
        nonlocal position
        position += bare.write_at(position, (records,))

    rounds = []
    for _ in range(7):
        appended = _each_us(lambda: append_as_leader(log, records, 3, now_ms=2000), count)
        rounds.append((appended, _each_us(write, count)))
    os.remove(f"{directory}/bare")
    append_us = statistics.median(appended for appended, _ in rounds)
    bare_us = statistics.median(written for _, written in rounds)
    return {
        "case": f"append_as_leader {name}",
        "us each": round(append_us, 2),
        "bare pwrite us": round(bare_us, 2),
        "more us": round(append_us - bare_us, 2),
        "GB/s": round(len(records) / append_us / 1000, 2),
    }


def _read(directory: str) -> list[dict[str, Any]]:
    log = _open(directory, "read")
    records = _batch(4000)
    count = 4000
    for _ in range(count):
        append_as_leader(log, records, 0, now_ms=2000)
    end = log.log_end_offset
    step = end // count
    small = _batch(100)
    requests = iter(range(0, end - step, step))
    cases = {
        "read of the tail": _each_us(lambda: log.read(end - step, size_max=2**20, offset_max=end), 20_000),
        "read at the end (nothing yet)": _each_us(lambda: log.read(end, size_max=2**20, offset_max=end), 20_000),
        "read anywhere, by the index": _each_us(lambda: log.read(next(requests), size_max=2**20, offset_max=end), 3000),
        "append_as_leader 1 record of 1 KB": _each_us(lambda: append_as_leader(log, small, 0, now_ms=2000), 5000),
    }
    return [{"case": case, "us each": round(each_us, 2)} for case, each_us in cases.items()]


def _recover(directory: str, megabytes: int) -> list[dict[str, Any]]:
    rows = []
    for name, size in SIZES.items():
        log = _open(directory, f"recover-{size}")
        records = _batch(size)
        for _ in range(megabytes * 2**20 // 2 // len(records)):
            append_as_leader(log, records, 0, now_ms=2000)
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            _open(directory, f"recover-{size}")
            seconds.append(time.perf_counter() - start)
        rate = log.segments.size_bytes / min(seconds) / 1e9
        rows.append(
            {"case": f"recovery, batches of {name}", "GB/s": round(rate, 2), "target GB/s": RECOVERY_TARGET_GB_S}
        )
        shutil.rmtree(log.path)
    return rows
