"""The compose file: valid, and its brokers accept their settings and form one cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from manifests import COMPOSE, documents, settings_of

NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    (document,) = documents(COMPOSE)
    return document


@pytest.mark.parametrize("number", NUMBERS)
def test_settings_of_a_broker(compose: dict[str, Any], number: int) -> None:
    """Each broker advertises its service name to the other brokers, and a published port to the host."""
    service = compose["services"][f"broker-{number}"]
    settings = settings_of(service["environment"])
    assert settings["broker.id"] == number
    advertised = {each.listener: (each.host, each.port) for each in settings.advertised_listeners}
    assert advertised == {"INTERNAL": (f"broker-{number}", 19092), "HOST": ("localhost", 9091 + number)}
    assert settings.inter_broker_listener == "INTERNAL"
    assert {each.host for each in settings.listeners} == {"0.0.0.0"}
    assert service["hostname"] == f"broker-{number}"
    assert f"127.0.0.1:{9091 + number}:{9091 + number}" in service["ports"]
    assert settings["zookeeper.connect"].startswith("zookeeper:2181/")
    assert settings.log_dirs[0].startswith(service["volumes"][0].partition(":")[2])
    assert (settings["default.replication.factor"], settings["min.insync.replicas"]) == (3, 2)


def test_all_ports_are_published_on_loopback(compose: dict[str, Any]) -> None:
    """The ports are reachable only from this machine, because the cluster has no authentication."""
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(ports) == len(set(ports)) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("number", NUMBERS)
def test_brokers_have_few_permissions_and_time_to_stop(compose: dict[str, Any], number: int) -> None:
    service = compose["services"][f"broker-{number}"]
    settings = settings_of(service["environment"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    retries, pause_ms = (settings[f"controlled.shutdown.{name}"] for name in ("max.retries", "retry.backoff.ms"))
    assert int(service["stop_grace_period"].removesuffix("s")) > retries * pause_ms / 1000
    assert service["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}
    assert set(compose["volumes"]) >= {volume.partition(":")[0] for volume in service["volumes"]}


def test_docker_compose_accepts_the_file() -> None:
    """``docker compose config`` validates the file and resolves its anchors."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    command = ["docker", "compose", "-f", str(COMPOSE), "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {f"broker-{number}" for number in NUMBERS} < set(json.loads(done.stdout)["services"])
