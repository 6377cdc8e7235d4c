"""CPU time of a broker per produced megabyte, relative to a C program that makes the same system calls.

``server.c`` only receives batches, checks them, assigns their offsets, writes them and responds, so most of its CPU
time is spent in the kernel and on checksums.  The broker's efficiency is the CPU time of ``server.c`` divided by the
broker's.  Both receive the same load in turn, each with a log whose page cache was filled in advance, and values are
medians.  Time in the kernel is counted in clock ticks and summed over all samples.  MB are 1e6 bytes of record values.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from glob import glob
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker_process import SCRATCH, BrokerProcess, cpu_s
from benchmarks.driver import Driver, Loaded, find_driver, measure, remove_driver, write_ahead

MB = 1_000_000
RECORD_BYTES = 1000
# The largest size is below the default of message.max.bytes.
BATCHES = {16_384: "16 K", 131_072: "128 K", 1_000_000: "1 M"}
TARGETS_PERCENT = {16_384: 50, 131_072: 65, 1_000_000: 75}
ROUNDS = {"quick": 5, "full": 15}
MEGABYTES = {"quick": 256, "full": 400}
OVERRIDES = {"log.segment.delete.delay.ms": "0"}
"""Free the pages of deleted logs at once instead of after a minute, for the next sample."""

PROGRAMS = {"kreplica": "kreplica", "checked": "C", "unchecked": "C without CRC"}


class Process(Loaded, Protocol):
    """A process under load."""

    @property
    def pid(self) -> int:
        """Process ID."""


@dataclass(frozen=True)
class Sample:
    """Cost of one run of the load program.

    :param cpu_us_per_mb: CPU time of the loaded process.
    :param user_ticks: clock ticks spent in the program itself.
    :param kernel_ticks: clock ticks spent in the kernel.
    """

    cpu_us_per_mb: float
    mb_per_s: float
    user_ticks: int
    kernel_ticks: int


class Target(Protocol):
    """The target of the load."""

    def topic(self) -> AbstractContextManager[tuple[Process, str, str]]:
        """Create a topic for the block; yield the process, the topic, and the path of its log, which need not exist."""


class Kreplica:
    """The whole product with default settings, including metrics."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._names = (f"efficiency-{number}" for number in count(1))

    @contextmanager
    def topic(self) -> Iterator[tuple[Process, str, str]]:
        name = next(self._names)
        for created in self._admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=10).values():
            created.result(20)
        try:
            yield self._broker, name, str(self._broker.directory / "data" / "**" / f"{name}-0" / "*.log")
        finally:
            for deleted in self._admin.delete_topics([name], operation_timeout=10).values():
                deleted.result(20)


class Reference:
    """``server.c``, as a separate process for each sample.

    :param checked: True to verify the CRC of each batch, as a broker must.
    """

    def __init__(self, program: Path, checked: bool) -> None:
        self._program = program
        self._checked = checked

    @contextmanager
    def topic(self) -> Iterator[tuple[Process, str, str]]:
        with TemporaryDirectory(prefix="server-", dir=SCRATCH) as directory:
            log = f"{directory}/log"
            with ServerProcess([str(self._program), log, str(int(self._checked))]) as server:
                yield server, "efficiency", log


class ServerProcess:
    """The running C program.

    :ivar bootstrap: bootstrap server for any producer.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> ServerProcess:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.bootstrap = f"127.0.0.1:{self._process.stdout.readline().strip()}"
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    @property
    def pid(self) -> int:
        """Process ID."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the CPU time."""
        return cpu_s(self.pid)

    def check_running(self) -> None:
        """Raise ``RuntimeError`` with the output of the process if it has exited."""
        if self._process.poll() is not None:
            assert self._process.stderr is not None
            raise RuntimeError(f"{self._command[0]} has exited: {self._process.stderr.read().strip()}")


def sample(driver: Driver, target: Target, batch_bytes: int, size: int) -> Sample:
    """Produce this number of bytes once."""
    before: list[tuple[int, int]] = []

    def touch() -> None:
        (path,) = glob(log, recursive=True)
        write_ahead(Path(path), size + size // 8, sync=False)
        before.append(ticks(process.pid))

    with target.topic() as (process, topic, log):
        arguments = (topic, 1, RECORD_BYTES, batch_bytes, size, 1)
        got = measure(driver, process, "produce", *arguments, before=touch)
        user, kernel = ticks(process.pid)
    written_mb = got.load["bytes"] / MB
    (began,) = before
    return Sample(
        got.broker_cpu_s * 1e6 / written_mb, written_mb / got.load["seconds"], user - began[0], kernel - began[1]
    )


def ticks(pid: int) -> tuple[int, int]:
    """Return the clock ticks that a process has spent in user mode and in the kernel."""
    behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(behind_name[11]), int(behind_name[12])


def row(batch_bytes: int, samples: dict[str, list[Sample]]) -> dict[str, Any]:
    """Return the row for one batch size.

    :param samples: by the key of ``PROGRAMS``.
    """
    us_per_mb = {name: statistics.median(each.cpu_us_per_mb for each in values) for name, values in samples.items()}
    mb_per_s = {name: statistics.median(each.mb_per_s for each in values) for name, values in samples.items()}
    in_kernel = {name: us_per_mb[name] * _kernel_part(values) for name, values in samples.items()}
    percent = 100 * us_per_mb["checked"] / us_per_mb["kreplica"]
    target = TARGETS_PERCENT[batch_bytes]
    return {
        "produce, acks=1, 1 KB in": f"{BATCHES[batch_bytes]} batches",
        **{f"{title} us/MB": us_per_mb[name] for name, title in PROGRAMS.items()},
        **{f"{PROGRAMS[name]}: in the kernel": in_kernel[name] for name in ("kreplica", "checked")},
        **{f"{PROGRAMS[name]} MB/s": mb_per_s[name] for name in ("kreplica", "checked")},
        "efficiency, %": percent,
        "efficiency without CRC, %": 100 * us_per_mb["unchecked"] / us_per_mb["kreplica"],
        "target": f">= {target} %",
        "": "pass" if percent >= target else "missed",
    }


def _kernel_part(samples: list[Sample]) -> float:
    kernel = sum(each.kernel_ticks for each in samples)
    return kernel / max(kernel + sum(each.user_ticks for each in samples), 1)


def compile_server(directory: Path) -> Path:
    """Compile ``server.c``; raise ``RuntimeError`` with the output of the compiler if that fails."""
    program = directory / "server"
    command = ["gcc", "-O2", "-msse4.2", "-o", str(program), str(Path(__file__).with_name("server.c"))]
    try:
        compiled = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError("gcc is missing: apt-get install -y gcc librdkafka-dev") from None
    if compiled.returncode:
        raise RuntimeError(f"server.c does not compile: {compiled.stderr.strip()}")
    return program


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure all programs in turn.

    :return: a row for each batch size.
    """
    samples: dict[int, dict[str, list[Sample]]] = {batch: {name: [] for name in PROGRAMS} for batch in BATCHES}
    with ExitStack() as stack:
        SCRATCH.mkdir(parents=True, exist_ok=True)
        program = compile_server(Path(stack.enter_context(TemporaryDirectory(prefix="server-", dir=SCRATCH))))
        driver = find_driver()
        stack.callback(remove_driver, driver)
        if driver.note is not None:
            print(driver.note, file=sys.stderr)
        broker = stack.enter_context(BrokerProcess(OVERRIDES))
        broker.wait_until_ready()
        targets: dict[str, Target] = {
            "kreplica": Kreplica(broker),
            "checked": Reference(program, checked=True),
            "unchecked": Reference(program, checked=False),
        }
        for _ in range(rounds or ROUNDS[scale]):
            for batch_bytes, by_program in samples.items():
                for name, target in targets.items():
                    by_program[name].append(sample(driver, target, batch_bytes, MEGABYTES[scale] * MB))
    return [row(batch_bytes, by_program) for batch_bytes, by_program in samples.items()]
