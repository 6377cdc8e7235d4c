"""Settings from environment variables, and an address other than 127.0.0.1, as in containers."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from kreplica.blocking import Cluster, Producer
from kreplica.blocking.admin import create_topic
from kreplica.model import Endpoint
from kreplica.service.broker.settings_maps import inter_broker_host
from kreplica.service.process.options import Options
from kreplica.service.standalone.broker_processes import _override_options
from kreplica.settings import BrokerSettings
from kreplica.settings.overrides import environment_overrides
from tests.support.standalone import StandaloneProcess


def test_broker_with_variables_and_another_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables change settings unless options do, and the broker and the admin API listen on the given address."""
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "3")
    monkeypatch.setenv("KAFKA_LOG_RETENTION_HOURS", "1")
    interface = "127.0.0.2"
    arguments = ("--environment", "--interface", interface, "--advertised-host", interface)
    overrides = ("--override", "log.retention.hours=2", "--override", "kreplica.admin.allow.anonymous=true")
    with StandaloneProcess(tmp_path, arguments=(*arguments, *overrides)) as process:
        address, admin_url = f"{interface}:{process.port}", f"http://{interface}:{process.admin_port}"
        with Cluster(address) as cluster:
            create_topic(cluster, "t", 1, 1)
            with Producer(cluster) as producer:
                producer.send("t", b"v")
            assert {str(broker.address) for broker in cluster.view.brokers.values()} == {address}
        with urllib.request.urlopen(f"{admin_url}/v1/configs/brokers/1") as response:
            rows = {row["name"]: row["value"] for row in json.load(response)["configs"]}
        assert (rows["num.partitions"], rows["log.retention.hours"]) == ("3", "2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["standalone", "--interface", "localhost"], "'localhost' is not an IPv4 address"),
        (["standalone", "--interface", "0.0.0.0", "--brokers", "2"], "listen on loopback only"),
        (["broker"], "--config FILE is required"),
    ],
)
def test_invalid_options(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Options().parseOptions(words)
    assert message in capsys.readouterr().err


def test_broker_with_variables_needs_no_settings_file() -> None:
    options = Options()
    options.parseOptions(["broker", "--environment"])
    assert options.subOptions["config"] is None


def test_child_processes_read_the_variables_themselves() -> None:
    """Secrets in variables are not passed on a child's command line, which every user can read."""
    variables = environment_overrides({"KAFKA_SSL_KEY_PASSWORD": "secret"})
    assert _override_options([*variables, "num.partitions=2"]) == ["--environment", "--override", "num.partitions=2"]
    assert _override_options(["num.partitions=2"]) == ["--override", "num.partitions=2"]


def test_admin_api_is_registered_with_the_inter_broker_host() -> None:
    """Other brokers send requests only to an advertised host, and the machine's name may not be one."""
    text = (
        "broker.id=1\nzookeeper.connect=z:2181\nlisteners=IN://0.0.0.0:1,OUT://0.0.0.0:2\n"
        "advertised.listeners=IN://broker-1:1,OUT://localhost:2\ninter.broker.listener.name=IN\n"
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\n"
    )
    settings = BrokerSettings.from_text(text)
    endpoints: tuple[Endpoint, ...] = settings.advertised_listeners
    assert inter_broker_host(settings, reversed(endpoints)) == "broker-1"
