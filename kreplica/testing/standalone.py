"""A real ``twistd kreplica standalone`` process, for tests and benchmarks with real clients and real kills."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

READY = b"is ready"


class StandaloneFailed(AssertionError):
    """The process ended, or was not ready in time; the text holds what it wrote."""


class StandaloneProcess:
    """One process, on ports of its own that stay the same over restarts.

    :param directory: where data and log go.
    :param brokers: how many brokers it runs.
    """

    def __init__(self, directory: Path, *, brokers: int = 1, arguments: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self._arguments = arguments
        self._brokers = brokers
        ports = free_ports(2 + brokers, consecutive=brokers)
        self.port, self.admin_port, self.coordinator_port = ports[0], ports[brokers], ports[brokers + 1]
        self._process: subprocess.Popen[bytes] | None = None
        self._output = bytearray()
        self._reader: threading.Thread | None = None
        self.ready_seconds = 0.0

    @property
    def bootstrap_servers(self) -> str:
        """For any Kafka client."""
        return ",".join(f"127.0.0.1:{self.port + i}" for i in range(self._brokers))

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """All that it wrote since the last start."""
        return self._output.decode(errors="replace")

    def command(self) -> list[str]:
        """What is run, as a user would type it."""
        twistd = os.path.join(os.path.dirname(sys.executable), "twistd")
        options = {
            "--brokers": self._brokers,
            "--data-dir": self.data_directory,
            "--port": self.port,
            "--admin-port": self.admin_port,
            "--coordinator-port": self.coordinator_port,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return [twistd, "-n", "--pidfile=", "kreplica", "standalone", *words, *self._arguments]

    def start(self, timeout_s: float = 30.0) -> StandaloneProcess:
        """Start it, and wait until it says that it is ready.

        :raise StandaloneFailed: where it does not.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._output.clear()
        started = time.monotonic()
        self._process = subprocess.Popen(
            self.command(), cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        said = threading.Event()
        # Read to the end: a process whose output nobody takes stands still when the pipe is full.
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, said), daemon=True)
        self._reader.start()
        if not said.wait(timeout_s) or READY not in self._output:
            self.kill()
            raise StandaloneFailed(f"not ready in {timeout_s} s:\n{self.output}")
        self.ready_seconds = time.monotonic() - started
        return self

    def kill(self) -> None:
        """``kill -9``: no chance to flush or to say goodbye."""
        self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, and wait for the orderly end.

        :return: the exit status.
        """
        return self._end(signal.SIGTERM, timeout_s)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait until it ends by itself, and all that it wrote is here.

        :return: the exit status.
        """
        process, reader = self._process, self._reader
        assert process is not None
        assert reader is not None
        status = process.wait(timeout_s)
        reader.join()
        return status

    def resident_bytes(self) -> int:
        """The memory that it occupies now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise StandaloneFailed("the process has ended")

    def __enter__(self) -> StandaloneProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _end(self, number: int, timeout_s: float = 30.0) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise StandaloneFailed(f"did not stop within {timeout_s} s:\n{self.output}") from None
        finally:
            if self._reader is not None:
                self._reader.join()
        return process.returncode

    def _read(self, stream: IO[bytes], said: threading.Event) -> None:
        with stream:
            while data := os.read(stream.fileno(), 65536):
                self._output += data
                if READY in data or READY in self._output[-len(data) - len(READY) :]:
                    said.set()
        said.set()


def free_ports(count: int, *, consecutive: int = 1) -> list[int]:
    """Ports of the loopback interface that nobody listens on just now; the first few follow each other."""
    while True:
        sockets: list[socket.socket] = []
        try:
            first = _bound(0)
            sockets.append(first)
            base = first.getsockname()[1]
            for offset in range(1, consecutive):
                sockets.append(_bound(base + offset))
            for _ in range(count - consecutive):
                sockets.append(_bound(0))
            return [s.getsockname()[1] for s in sockets]
        except (OSError, OverflowError):
            continue  # a neighbour of the first is taken: try elsewhere
        finally:
            for opened in sockets:
                opened.close()


def _bound(port: int) -> socket.socket:
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind(("127.0.0.1", port))
    return opened
