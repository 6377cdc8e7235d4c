"""Three nodes of Apache Kafka 3.9 or 4.x in KRaft mode (KIP-500) on loopback, each both broker and controller."""

from __future__ import annotations

import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import apache_kafka

NODES = (1, 2, 3)
HEAP = "300m"
FORMAT_S_MAX = 120
STOP_S_MAX = 30

QUICK = {
    "broker.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 5000,
}


class KraftCluster:
    """A cluster that is formatted and started on entering the context, and killed on leaving it.

    :param settings: settings of all nodes, which override ``QUICK``.
    """

    def __init__(
        self,
        directory: Path,
        version: str = apache_kafka.KAFKA_VERSION,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._directory = directory
        self._version = version
        self._own_settings = {**QUICK, **(settings or {})}
        self._ports = {node: (apache_kafka.free_port(), apache_kafka.free_port()) for node in NODES}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self._ports.values())

    def start(self, node: int) -> None:
        """Start a stopped node, and wait until it listens."""
        self._launch(node)
        apache_kafka.wait_for_port(self._ports[node][0], self._processes[node])

    def _launch(self, node: int) -> None:
        home, settings = self._home(node), self._settings(node)
        self._processes[node] = apache_kafka.start("kafka.Kafka", settings, home, HEAP, self._version)

    def stop(self, node: int) -> None:
        """Stop a node with a controlled shutdown, so that it hands over the leadership of its partitions."""
        process = self._processes.pop(node)
        process.terminate()
        process.wait(STOP_S_MAX)

    def kill(self, node: int) -> None:
        """Kill a node with SIGKILL."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def __enter__(self) -> Self:
        cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        for node in NODES:
            self._format(node, cluster_id)
        try:
            for node in NODES:
                self._launch(node)  # in parallel: each waits for the others before it serves
            for node in NODES:
                apache_kafka.wait_for_port(self._ports[node][0], self._processes[node])
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for node in list(self._processes):
            self.kill(node)

    def _home(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _format(self, node: int, cluster_id: str) -> None:
        home = self._home(node)
        home.mkdir()
        settings = home / "format.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._settings(node).items()))
        java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", apache_kafka.server_class_path(self._version)]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)],
            check=True,
            capture_output=True,
            timeout=FORMAT_S_MAX,
        )

    def _settings(self, node: int) -> dict[str, object]:
        port, controller_port = self._ports[node]
        return {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{self._ports[n][1]}" for n in NODES),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self._home(node) / "logs",
            **self._own_settings,
        }
