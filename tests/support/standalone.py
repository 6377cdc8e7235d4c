"""A real ``twistd kreplica standalone`` process, for tests and benchmarks with real clients and real kills."""

from __future__ import annotations

from pathlib import Path

from kreplica import __version__
from tests.support.server_process import ServerProcess, free_ports, twistd


class StandaloneProcess(ServerProcess):
    """A standalone process whose ports are kept across restarts.

    :param directory: directory of the data and the log.
    :param brokers: number of brokers in the process.
    """

    def __init__(self, directory: Path, *, brokers: int = 1, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(directory, f"kreplica {__version__} is ready".encode())
        self.data_directory = directory / "data"
        self._arguments = arguments
        self._brokers = brokers
        ports = free_ports(2 + brokers, consecutive=brokers)
        self.port, self.admin_port, self.coordinator_port = ports[0], ports[brokers], ports[brokers + 1]

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for any Kafka client."""
        return ",".join(f"127.0.0.1:{self.port + i}" for i in range(self._brokers))

    @property
    def admin_url(self) -> str:
        """URL of the admin API."""
        return f"http://127.0.0.1:{self.admin_port}"

    def command(self) -> list[str]:
        options = {
            "--brokers": self._brokers,
            "--data-dir": self.data_directory,
            "--port": self.port,
            "--admin-port": self.admin_port,
            "--zookeeper-port": self.coordinator_port,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return twistd("standalone", *words, *self._arguments)
