"""Apache Kafka 4 in KRaft mode (KIP-500), with as many nodes as brokers; each node is also a controller."""

from __future__ import annotations

import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.broker_process import SCRATCH
from benchmarks.comparison.deployments import SHARED, Deployment, Kafka, KafkaBroker
from tests.interop import apache_kafka
from tests.support.server_process import free_ports

FORMAT_S_MAX = 120


@contextmanager
def kraft(brokers: int) -> Iterator[Deployment]:
    """Run Apache Kafka 4 with this number of brokers.

    :raise apache_kafka.NoKafka: Kafka is not available here; the message names the missing program.
    """
    class_path = apache_kafka.server_class_path(apache_kafka.NEWEST_VERSION)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    ports = free_ports(2 * brokers)
    places = dict(enumerate(zip(ports[::2], ports[1::2], strict=True), start=1))
    with (
        TemporaryDirectory(prefix="kraft-", dir=SCRATCH, ignore_cleanup_errors=True) as scratch,
        ExitStack() as stack,
    ):
        directory, started = Path(scratch), dict[int, KafkaBroker]()
        cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        for node, (port, _) in places.items():
            home = directory / f"kafka-{node}"
            settings = _settings(home, node, places)
            _format(home, settings, cluster_id, class_path)
            started[node] = KafkaBroker(home, port, settings, class_path)
            stack.callback(started[node].kill)
        for broker in started.values():
            broker.wait_until_ready()
        yield Kafka(started, directory, zookeeper="")


def _settings(home: Path, node: int, places: Mapping[int, tuple[int, int]]) -> dict[str, object]:
    port, controller_port = places[node]
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{places[each][1]}" for each in places),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": home / "logs",
        "offsets.topic.replication.factor": len(places),
        "transaction.state.log.replication.factor": len(places),
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": len(places),
        "share.coordinator.state.topic.min.isr": 1,
        **SHARED,
    }


def _format(home: Path, settings: Mapping[str, object], cluster_id: str, class_path: str) -> None:
    home.mkdir()
    file = home / "format.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=FORMAT_S_MAX)
