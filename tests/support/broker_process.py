"""A real ``twistd kreplica broker`` process of a cluster, with a settings file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.server_process import ServerProcess, free_ports, twistd


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker is found.

    :param port: where it listens.
    :param advertised_host: what it tells others, such as a proxy's.
    :param zookeeper: ``host:port,...`` as this broker sees it.
    :param command_prefix: what is to run the command, such as ``ip netns exec NAME``.
    """

    host: str
    port: int
    advertised_host: str
    advertised_port: int
    zookeeper: str
    command_prefix: tuple[str, ...] = ()


def direct_place(zookeeper: str) -> Place:
    """On loopback, with nothing in between."""
    (port,) = free_ports(1)
    return Place("127.0.0.1", port, "127.0.0.1", port, zookeeper)


class BrokerProcess(ServerProcess):
    """One broker; place, settings and data stay the same over restarts.

    :param directory: where settings file and logs go.
    :param settings: as in ``server.properties``; they go before what this class sets.
    """

    def __init__(
        self, directory: Path, broker_id: int, place: Place, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(directory, b"broker %d is ready" % broker_id)
        self.broker_id = broker_id
        self.place = place
        self.settings: dict[str, object] = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{place.host}:{place.port}",
            "advertised.listeners": f"PLAINTEXT://{place.advertised_host}:{place.advertised_port}",
            "zookeeper.connect": place.zookeeper,
            "log.dirs": directory / "logs",
            **(settings or {}),
        }

    @property
    def address(self) -> str:
        """``host:port`` for clients, through whatever is in between."""
        return f"{self.place.advertised_host}:{self.place.advertised_port}"

    @property
    def log_directories(self) -> Sequence[Path]:
        """Where its logs are."""
        return [Path(path) for path in str(self.settings["log.dirs"]).split(",")]

    def command(self) -> list[str]:
        path = self.directory / "broker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        return [*self.place.command_prefix, *twistd("broker", "--config", path)]
