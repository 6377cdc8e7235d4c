"""A ``twistd kreplica ...`` command in its own process, which can be paused, killed and measured through ``/proc``."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

OUTPUT_SIZE_MAX = 20 << 20
"""Maximum size of the output that is kept; it is larger than the output of any passing test."""


PORT_MIN = 10_000


class ServerFailed(AssertionError):
    """The process exited, was not ready in time or did not stop in time; the message contains its output."""


class ServerProcess:
    """A process that can be started again after it has exited; its creator must stop it, in the end with ``kill``.

    :param directory: working directory, created if it is missing.
    :param ready: line in the output that shows that the process is ready.
    :ivar pid: ID of the last process, even if it has exited; 0 before the first start.
    :ivar paused: True after ``pause``.
    """

    def __init__(self, directory: Path, ready: bytes) -> None:
        self.directory = directory
        self.pid = 0
        self.paused = False
        self.ready_seconds = 0.0
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self._output = bytearray()
        self._output_begin = 0
        self._reader: threading.Thread | None = None
        self._said = threading.Event()
        self._launched_s = 0.0

    def command(self) -> list[str]:
        """Return the command line."""
        raise NotImplementedError

    # --- state ---

    @property
    def running(self) -> bool:
        """True if the process exists (it may be paused)."""
        return self._process is not None and self._process.poll() is None

    @property
    def answering(self) -> bool:
        """True if the process exists and is not paused."""
        return self.running and not self.paused

    @property
    def output(self) -> str:
        """Output since the last start."""
        return self._output[self._output_begin :].decode(errors="replace")

    @property
    def all_output(self) -> str:
        """Output since the first start."""
        return self._output.decode(errors="replace")

    def resident_bytes(self) -> int:
        """Return the resident memory size."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ServerFailed("the process has ended")

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads since the start of the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # --- actions ---

    def start(self, timeout_s: float = 30.0) -> Self:
        """Start the process, and wait until it is ready.

        :raise ServerFailed: the process did not become ready.
        """
        self.launch()
        self.wait_until_ready(timeout_s)
        return self

    def launch(self) -> None:
        """Start the process without waiting."""
        assert not self.running, "the process is already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._output_begin = len(self._output)
        self.paused = False
        self._said = threading.Event()
        self._launched_s = time.monotonic()
        self._process = subprocess.Popen(
            self.command(),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        # Read to the end: a process blocks on its output when the pipe is full.
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self._said), daemon=True)
        self._reader.start()

    def wait_until_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the process is ready; kill it if it is not ready in time.

        :raise ServerFailed: the process was not ready in time, or exited.
        """
        said = self._said.wait(timeout_s)
        if not said or self._ready not in self._output[self._output_begin :]:
            self.kill()
            raise ServerFailed(f"{'ended' if said else f'not ready in {timeout_s:g} s'}:\n{self.output}")
        self.ready_seconds = time.monotonic() - self._launched_s

    def pause(self) -> None:
        """Suspend the process, as on a swapping host: connections stay open, but there are no responses."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Undo ``pause``."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        """Kill the process with SIGKILL; does nothing if it is not running."""
        self._end(signal.SIGKILL, 30.0)

    def stop(self, timeout_s: float = 30.0, *, number: int = signal.SIGTERM) -> int:
        """Stop the process with a signal, and wait until it has exited.

        :return: the exit status.
        :raise ServerFailed: the process did not exit in time, and was killed.
        """
        return self._end(number, timeout_s)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait until the process exits by itself and its output is complete.

        :return: the exit status.
        """
        process, reader = self._process, self._reader
        assert process is not None
        assert reader is not None
        status = process.wait(timeout_s)
        reader.join()
        return status

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _end(self, number: int, timeout_s: float) -> int:
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
            raise ServerFailed(f"did not stop within {timeout_s} s:\n{self.output}") from None
        finally:
            if self._reader is not None:
                self._reader.join()
        return process.returncode

    def _read(self, stream: IO[bytes], said: threading.Event) -> None:
        with stream:
            while data := os.read(stream.fileno(), 65536):
                if len(self._output) < OUTPUT_SIZE_MAX:
                    self._output += data
                if not said.is_set() and self._ready in self._output[-len(data) - len(self._ready) :]:
                    said.set()
        said.set()


def twistd(*words: object) -> list[str]:
    """Return the command line of ``twistd kreplica`` in the foreground, with the current Python interpreter."""
    path = os.path.join(os.path.dirname(sys.executable), "twistd")
    return [path, "-n", "--pidfile=", "kreplica", *map(str, words)]


def free_ports(count: int, *, consecutive: int = 1) -> list[int]:
    """Return loopback ports on which no process is listening.

    They are below the ephemeral ports, so that no client connection takes the port of a server that is down.

    :param consecutive: number of ports at the start that must be consecutive.
    """
    while True:
        first = random.randrange(PORT_MIN, _first_ephemeral_port() - count)
        ports = [first + offset for offset in range(consecutive)]
        ports += random.sample(range(PORT_MIN, _first_ephemeral_port()), count - consecutive)
        if len(set(ports)) == count and all(map(_is_free, ports)):
            return ports


def _first_ephemeral_port() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def _is_free(port: int) -> bool:
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
