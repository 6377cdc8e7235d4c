"""``KreplicaContainer``, with a stub of Docker that runs the container's command on this machine."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from archives import unpack
from testcontainers.core import container as testcontainers_container
from testcontainers.core.config import testcontainers_config

from kreplica import __version__
from kreplica.blocking import Cluster, Producer
from kreplica.blocking.admin import create_topic
from kreplica.testing import container as kreplica_container
from kreplica.testing.container import KreplicaContainer
from tests.support.server_process import free_ports

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "testing.md").read_text()


class StubContainer:
    """A container that runs on this machine: paths and ports in its scripts are replaced by local ones."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        self.directory, self.options = directory, options
        self.ports = dict(zip(("9092", "8080", "19092"), map(str, free_ports(3)), strict=True))
        self.process: subprocess.Popen[bytes] | None = None
        self.removed = False
        self.id = self.short_id = "stub"

    def put_archive(self, path: str, data: bytes) -> None:
        """Unpack the start script, and run it as the entry point does."""
        assert path == "/tmp"
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            unpack(archive, self.directory)
        script, complete = (self.directory / name for name in ("kreplica-start.sh", "kreplica-start.complete"))
        entrypoint = " ".join(self.options["entrypoint"])
        assert all(f"/tmp/{path.name}" in entrypoint for path in (script, complete))
        assert complete.exists()
        variables = {name: self._local(value) for name, value in self.options["environment"].items()}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with (self.directory / "log").open("wb") as log:
            text = self._local(script.read_text()).replace("standalone", "standalone --zookeeper-port 0")
            environment = {**os.environ, **variables, "PATH": path}
            self.process = subprocess.Popen(["sh", "-c", text], env=environment, stdout=log, stderr=log)

    def _local(self, text: str) -> str:
        for inside, outside in self.ports.items():
            text = text.replace(f":{inside}", f":{outside}").replace(f"port {inside}", f"port {outside}")
        return text.replace("0.0.0.0", "127.0.0.1").replace("/var/lib/kreplica", str(self.directory / "data"))

    def reload(self) -> None:
        pass

    @property
    def status(self) -> str:
        return "running" if self.process is not None and self.process.poll() is None else "exited"

    def logs(self, **options: Any) -> bytes:
        return (self.directory / "log").read_bytes()

    def remove(self, **options: Any) -> None:
        self.removed = True
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)


class StubDocker:
    """The part of testcontainers' Docker client that ``KreplicaContainer`` uses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.container: StubContainer | None = None
        self.image = ""

        self.client = self

    def create(self, image: str, **options: Any) -> StubContainer:
        self.image, self.container = image, StubContainer(self.directory, options)
        return self.container

    def start(self, container: StubContainer) -> None:
        assert container is self.container

    def close(self) -> None:
        pass

    def port(self, port: int) -> int:
        assert self.container is not None
        return int(self.container.ports[str(port)])


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubDocker]:
    stub = StubDocker(tmp_path)
    monkeypatch.setattr(testcontainers_container, "DockerClient", lambda **options: stub)
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    monkeypatch.setattr(KreplicaContainer, "get_container_host_ip", lambda self: "127.0.0.1")
    monkeypatch.setattr(KreplicaContainer, "get_exposed_port", lambda self, port: stub.port(port))
    yield stub
    if stub.container is not None and not stub.container.removed:
        stub.container.remove()


def test_a_broker_in_a_container(docker: StubDocker) -> None:
    """Clients use the published port, although the broker listens on another address in the container."""
    with KreplicaContainer(settings={"num.partitions": 3, "auto.create.topics.enable": False}) as kafka:
        assert docker.container is not None
        assert docker.image == kreplica_container.IMAGE
        assert kafka.get_bootstrap_server() == f"127.0.0.1:{docker.container.ports['9092']}"
        with Cluster(kafka.get_bootstrap_server()) as cluster:
            create_topic(cluster, "greetings", 3, 1)
            with Producer(cluster) as producer:
                producer.send("greetings", b"hello")
            addresses = {str(broker.address) for broker in cluster.view.brokers.values()}
        assert addresses == {kafka.get_bootstrap_server()}
        with urllib.request.urlopen(f"{kafka.admin_url()}/v1/configs/brokers/1") as response:
            rows = {row["name"]: row["value"] for row in json.load(response)["configs"]}
        assert (rows["num.partitions"], rows["auto.create.topics.enable"]) == ("3", "false")
    assert docker.container.removed


def test_a_broker_that_does_not_start(docker: StubDocker) -> None:
    """The error contains the broker's log, and the container is removed."""
    has_ended = pytest.raises(RuntimeError, match=r"has ended\n(.*\n)*.*KAFKA_NUM_PARTITIONS.*'many' is not allowed")
    with has_ended, KreplicaContainer(settings={"num.partitions": "many"}):
        pass
    assert docker.container is not None
    assert docker.container.removed


def test_a_broker_that_is_late(docker: StubDocker) -> None:
    with pytest.raises(RuntimeError, match="is not ready: "):
        KreplicaContainer().start(timeout_s=0)


def test_the_example_in_the_documentation(docker: StubDocker, tmp_path: Path) -> None:
    """The test suite in docs/how-to/testing.md passes."""
    (example,) = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "testing.md", "exec"), names)
    with KreplicaContainer(f"kreplica:{__version__}", settings={"num.partitions": 3}) as container:
        names["test_an_order_is_placed"](container)
    assert f'KreplicaContainer("kreplica:{__version__}"' in example
