"""A ``twistd kreplica broker`` process that is one member of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.server_process import ServerProcess, free_ports, twistd


@dataclass(frozen=True, slots=True)
class Place:
    """Network addresses of a broker.

    :param port: port on which the broker listens.
    :param advertised_host: host in the broker's metadata, for example a proxy's.
    :param zookeeper: ``host:port,...`` at which this broker reaches the coordinator.
    :param command_prefix: command that wraps the broker's command, such as ``ip netns exec NAME``.
    """

    host: str
    port: int
    advertised_host: str
    advertised_port: int
    zookeeper: str
    command_prefix: tuple[str, ...] = ()


def direct_place(zookeeper: str) -> Place:
    """Return loopback addresses without a proxy."""
    (port,) = free_ports(1)
    return Place("127.0.0.1", port, "127.0.0.1", port, zookeeper)


class BrokerProcess(ServerProcess):
    """One broker; addresses, settings and data are kept across restarts.

    :param directory: directory of the settings file and of the logs.
    :param settings: settings as in ``server.properties``; they override those of this class.
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
        """``host:port`` for clients; may be that of a proxy."""
        return f"{self.place.advertised_host}:{self.place.advertised_port}"

    @property
    def log_directories(self) -> Sequence[Path]:
        return [Path(path) for path in str(self.settings["log.dirs"]).split(",")]

    def command(self) -> list[str]:
        path = self.directory / "broker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        return [*self.place.command_prefix, *twistd("broker", "--config", path)]
