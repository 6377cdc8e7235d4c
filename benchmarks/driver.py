"""The load program as a subprocess: it prepares, waits for a start signal, and reports.

``load.c``, which uses librdkafka, is compiled for each run; if that is not possible, ``python_load`` replaces it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from benchmarks.broker_process import ROOT, SCRATCH

HERE = Path(__file__).parent
READY_TIME_S = 30
ZEROS = bytes(1 << 20)
NO_CONFIG: Mapping[str, str] = {}
CONFIG_VARIABLE = "LOAD_CLIENT_CONFIG"


@dataclass(frozen=True)
class Driver:
    """The command of the load program.

    :param note: caveat for readers of the figures; None for ``load.c``.
    """

    command: tuple[str, ...]
    note: str | None


class Loaded(Protocol):
    """The target of the load: one broker or several."""

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers for clients."""

    def cpu_s(self) -> float:
        """Return the CPU time of all brokers."""

    def check_running(self) -> None:
        """Raise ``RuntimeError`` with the output of a broker that has exited."""


@dataclass(frozen=True)
class Measurement:
    """One run of the load program.

    :param load: the program's report.
    :param broker_cpu_s: the brokers' CPU time between the start signal and the report.
    :param broker_switches: the brokers' context switches in the same time; None if they were not counted.
    """

    load: dict[str, Any]
    broker_cpu_s: float
    broker_switches: int | None = None


def find_driver() -> Driver:
    """Compile ``load.c``, or fall back to Python."""
    fallback = (sys.executable, "-m", "benchmarks.python_load")
    if shutil.which("gcc") is None:
        return Driver(fallback, _fallback_note("gcc is missing"))
    SCRATCH.mkdir(parents=True, exist_ok=True)
    program = SCRATCH / f"load-{os.getpid()}"
    command = ["gcc", "-O2", "-o", str(program), str(HERE / "load.c"), "-lrdkafka", "-lpthread"]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode:
        return Driver(fallback, _fallback_note(f"load.c does not compile ({compiled.stderr.strip().splitlines()[0]})"))
    return Driver((str(program),), None)


def _fallback_note(why: str) -> str:
    return (
        f"{why}: apt-get install -y gcc librdkafka-dev provides the real load program. These figures are from a client"
        " in Python, which is slower than the broker: throughput is a lower bound."
    )


def remove_driver(driver: Driver) -> None:
    """Remove the program that ``find_driver`` compiled."""
    if driver.note is None:
        Path(driver.command[0]).unlink(missing_ok=True)


def measure(
    driver: Driver,
    broker: Loaded,
    mode: str,
    *arguments: object,
    before: Callable[[], None] | None = None,
    client_config: Mapping[str, str] = NO_CONFIG,
) -> Measurement:
    """Run the load program once.

    :param before: called right before the measured part, when the program is connected and warm.
    :param client_config: further settings of librdkafka; ``python_load`` ignores them.
    :raise RuntimeError: the program failed; the message contains its output.
    """
    (load,), broker_cpu_s = measure_together(
        driver, broker, mode, [arguments], before=before, client_config=client_config
    )
    return Measurement(load, broker_cpu_s)


def measure_together(
    driver: Driver,
    broker: Loaded,
    mode: str,
    arguments: Sequence[Sequence[object]],
    *,
    before: Callable[[], None] | None = None,
    client_config: Mapping[str, str] = NO_CONFIG,
) -> tuple[list[dict[str, Any]], float]:
    """Run several load programs at the same time.

    :param arguments: arguments of each program.
    :param before: called right before the measured part, when all programs are connected and warm.
    :return: the reports, and the brokers' CPU time between the start signal and the last report.
    :raise RuntimeError: a program failed; the message contains its output.
    """
    with ExitStack() as stack:
        loads = [stack.enter_context(_Load(driver, broker, mode, each, client_config)) for each in arguments]
        for load in loads:
            load.wait_until_ready()
        if before is not None:
            before()
        cpu_s = broker.cpu_s()
        for load in loads:
            load.go()
        reports = [load.report() for load in loads]
        return reports, broker.cpu_s() - cpu_s


class _Load:
    """One run of the load program, which is killed at the end of the block if it is still running."""

    def __init__(
        self, driver: Driver, broker: Loaded, mode: str, arguments: Sequence[object], config: Mapping[str, str]
    ) -> None:
        words = [mode, broker.bootstrap, *map(str, arguments)]
        self._name = " ".join(words)
        self._broker = broker
        self._process = subprocess.Popen(
            [*driver.command, *words],
            cwd=ROOT,
            env={**os.environ, CONFIG_VARIABLE: "\n".join(f"{name}={value}" for name, value in config.items())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _Load:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self._fail()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def report(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        report: dict[str, Any] = json.loads(line)
        return report

    def _fail(self) -> NoReturn:
        assert self._process.stderr is not None
        self._broker.check_running()
        raise RuntimeError(f"{self._name}: {self._process.stderr.read().strip()}")


def write_ahead(log: Path, size_bytes: int, *, sync: bool) -> None:
    """Write zeros after the end of a log, so that the pages are in the page cache.

    On a virtual machine, memory that has been free for a few seconds is returned to the host.  Getting it back costs
    2,000 us/MB, many times the broker's own cost: a benchmark with a growing page cache measures the hypervisor.  The
    broker knows the end of its log, so it overwrites the zeros, as in a file that is reused.

    :param log: the active segment; it must have space for this many bytes before the broker rolls it.
    :param sync: True if the broker syncs its writes, so that its syncs do not write the zeros to disk as well.
    """
    with log.open("r+b", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        for _ in range(0, size_bytes, len(ZEROS)):
            file.write(ZEROS)
        if sync:
            os.fdatasync(file.fileno())
