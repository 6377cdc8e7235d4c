"""An embedded coordinator in its own process, for tests that kill it, for benchmarks, and for other test suites.

``python -m tests.support.coordinator DIRECTORY PORT TICK_TIME_MS`` runs one and prints its port.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from kreplica.errors import KreplicaError
from kreplica.runtime import real_runtime
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper

START_TIME_S_MAX = 20.0
STOP_TIME_S_MAX = 20.0


class CoordinatorUnavailable(KreplicaError):
    """The process did not start; the message contains the end of its output."""


class CoordinatorProcess:
    """One coordinator process on loopback that can be killed and started again.

    :param port: 0 to let the system choose a port at the first start; later starts keep it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, port: int = 0, tick_time_ms: int = 500) -> None:
        self.directory = Path(directory)
        self.port = port
        self._tick_time_ms = tick_time_ms
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process ID of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process exists."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it serves requests; does nothing if it is running.

        :raise CoordinatorUnavailable: the process exited instead.
        """
        if self.running:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.support.coordinator"]
        arguments = [str(self.directory / "data"), str(self.port), str(self._tick_time_ms)]
        with open(self.directory / "output.log", "a") as output:
            self._process = process = subprocess.Popen(
                command + arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
            )
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_TIME_S_MAX)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.kill()
            raise CoordinatorUnavailable(self.last_output())
        self.port = int(line)

    def four_letters(self, word: str, timeout_s: float = 5.0) -> str:
        """Return the response to a four-letter command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def stop(self) -> None:
        """Stop the process cleanly and keep its data; does nothing if it is not running."""
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIME_S_MAX)
            finally:
                self.kill()

    def kill(self) -> None:
        """Kill the process with SIGKILL and keep its data; does nothing if it is not running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def last_output(self) -> str:
        """Return the end of its log, for error messages."""
        return (self.directory / "output.log").read_text(errors="replace")[-3000:]

    def __enter__(self) -> CoordinatorProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def main(directory: str, port: int, tick_time_ms: int) -> int:
    """Run a coordinator until the process is stopped or its parent exits.

    :return: the exit status, 1 if the coordinator could not start.
    """
    from twisted.internet import reactor, stdio
    from twisted.internet.protocol import Protocol
    from twisted.logger import globalLogPublisher, textFileLogObserver
    from twisted.python.failure import Failure

    class Parent(Protocol):
        """Standard input, which is closed when the parent exits for any reason."""

        def connectionLost(self, reason: Failure | None = None) -> None:
            if reactor.running:
                reactor.stop()

    globalLogPublisher.addObserver(textFileLogObserver(sys.stderr))
    runtime = real_runtime(reactor)
    coordinator = EmbeddedZooKeeper(runtime, directory, port=port, tick_time_ms=tick_time_ms)
    failures: list[Failure] = []

    def failed(failure: Failure) -> None:
        failures.append(failure)
        print(failure.getErrorMessage(), file=sys.stderr)
        reactor.stop()

    def start() -> None:
        stdio.StandardIO(Parent())
        coordinator.start().addCallbacks(lambda _: print(coordinator.port, flush=True), failed)

    reactor.callWhenRunning(start)
    reactor.addSystemEventTrigger("before", "shutdown", coordinator.stop)
    reactor.addSystemEventTrigger("after", "shutdown", runtime.offload.stop)
    reactor.run()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
