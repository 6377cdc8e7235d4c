"""A broker as a subprocess, measured through ``/proc``."""

from __future__ import annotations

import compileall
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO

from benchmarks.raw_client import RawClient

ROOT = Path(__file__).parent.parent
# Not in /tmp, which may be in memory: the logs should be on disk, as in production.
SCRATCH = Path(__file__).parent / "results"
START_TIME_S = 30.0
STOP_TIME_S = 20.0
DESCRIPTORS_MAX = 65536


def free_ports(count: int) -> list[int]:
    """Return free loopback ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class BrokerProcess:
    """``twistd -n kreplica standalone`` on free ports, with a scratch directory that is removed afterwards.

    :param overrides: settings such as ``{"num.partitions": "4"}``.
    :param directory: a directory to use and keep; by default a temporary one.
    :param launcher: command to start instead of ``twistd``, with the same arguments.
    :ivar coordinator_port: port of the embedded coordinator.
    """

    def __init__(
        self,
        overrides: dict[str, str] | None = None,
        directory: Path | None = None,
        launcher: Sequence[str] = (str(Path(sys.executable).with_name("twistd")),),
    ) -> None:
        self._overrides = overrides or {}
        self._launcher = launcher
        self.coordinator_port = 0
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.port = 0
        self.started_s = 0.0

    def __enter__(self) -> BrokerProcess:
        SCRATCH.mkdir(parents=True, exist_ok=True)
        self.directory = self._directory or Path(tempfile.mkdtemp(prefix="broker-", dir=SCRATCH))
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if value is not None and self._output is not None:
            print(f"--- output of the broker:\n{self.output()}---", file=sys.stderr)
        self.stop()
        if self._directory is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start the process without waiting until it serves requests."""
        compile_sources()
        self.port, admin_port, self.coordinator_port = free_ports(3)
        command = [
            *self._launcher,
            "--nodaemon",
            "--pidfile=",
            "kreplica",
            "standalone",
            f"--port={self.port}",
            f"--admin-port={admin_port}",
            f"--zookeeper-port={self.coordinator_port}",
            f"--data-dir={self.directory / 'data'}",
            *(f"--override={name}={value}" for name, value in self._overrides.items()),
        ]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self.started_s = time.monotonic()
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            preexec_fn=allow_files,
        )

    def wait_until_ready(self) -> None:
        """Wait until the broker lists itself in its metadata, because some libraries take long to retry after an empty
        list.

        :raise RuntimeError: the process exited or was not ready in time; the message contains its output.
        """
        while time.monotonic() - self.started_s < START_TIME_S:
            self.check_running()
            try:
                client = RawClient(self.port)
            except OSError:
                time.sleep(0.01)
                continue
            try:
                if client.broker_count():
                    return
            except OSError:
                pass
            finally:
                client.close()
            time.sleep(0.01)
        raise RuntimeError(f"not ready after {START_TIME_S} s:\n{self.output()}")

    def check_running(self) -> None:
        """Raise ``RuntimeError`` with the output of the process if it has exited."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the broker exited with status {self._process.returncode}:\n{self.output()}")

    def output(self) -> str:
        """Return the last part of the broker's output."""
        assert self._output is not None
        size = self._output.seek(0, 2)
        self._output.seek(max(size - 4000, 0))
        return self._output.read().decode(errors="replace")

    def stop(self) -> None:
        """Stop the broker cleanly; kill it if that takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIME_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._output is not None:
            self._output.close()
            self._output = None

    @property
    def pid(self) -> int:
        """Process ID."""
        assert self._process is not None
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers for clients."""
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """Return the CPU time of all threads, from the scheduler's statistics (nanoseconds, not ticks)."""
        return cpu_s(self.pid)

    def resident_mb(self) -> float:
        """Return the resident memory in MB (1e6 bytes)."""
        return resident_mb(self.pid)


@cache
def compile_sources() -> None:
    """Compile all modules to bytecode once, as in an installed package.

    Otherwise, if the environment forbids Python to write bytecode, each start compiles edited modules, which takes a
    third of its time.
    """
    compileall.compile_dir(ROOT / "kreplica", quiet=1)


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, from the scheduler's statistics (nanoseconds, not ticks)."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has just ended
    return total_ns / 1e9


def context_switches(pid: int) -> int:
    """Return the number of voluntary and involuntary context switches of a process's current threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            text = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has just ended
        total += sum(int(count) for count in re.findall(r"voluntary_ctxt_switches:\s+(\d+)", text))
    return total


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (1e6 bytes)."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def allow_files() -> int:
    """Raise this process's limit on open files as far as permitted, and return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, DESCRIPTORS_MAX) if hard != resource.RLIM_INFINITY else DESCRIPTORS_MAX
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
