"""A broker does not start if a setting in ZooKeeper requires protection that the broker does not support."""

from __future__ import annotations

from pathlib import Path

import pytest

from kreplica.cluster import documents
from kreplica.errors import SettingsError
from kreplica.runtime import real_runtime
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from kreplica.wire.messages import INCREMENTAL_ALTER_CONFIGS
from tests.support.broker_scene import Scene, on_broker

INVALID_CONFIG = 40
SET = 0


def test_unsupported_protection_in_zookeeper_stops_the_start(tmp_path: Path) -> None:
    """A setting that a Kafka broker or tool may have written stops the start; the error names the znode and setting."""

    async def scenario(scene: Scene) -> None:
        data = documents.encode_config({"sasl.kerberos.service.name": "kafka"})
        await scene.zookeeper.create("/config/brokers/2", data)
        connect = f"127.0.0.1:{scene.standalone.zookeeper.port}"
        settings = BrokerSettings.from_text(
            f"broker.id=2\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/second\nzookeeper.connect={connect}\n"
        )
        second = Broker(real_runtime(scene.reactor), settings)
        with pytest.raises(SettingsError) as caught:
            await second.start()
        await second.stop()
        assert "/config/brokers/2" in str(caught.value)
        assert "service.name=kafka requests protection that this release does not support" in str(caught.value)

    on_broker(tmp_path / "first", scenario, errors_logged=True)


def test_unsupported_protection_cannot_be_set(tmp_path: Path) -> None:
    """The response contains the reason, and nothing is written, so no client relies on the protection."""

    async def scenario(scene: Scene) -> None:
        change = {"name": "sasl.kerberos.service.name", "config_operation": SET, "value": "kafka"}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
        response = await scene.ask(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
        (row,) = response["responses"]
        assert row["error_code"] == INVALID_CONFIG
        assert "requests protection that this release does not support" in row["error_message"]
        assert await scene.zookeeper.exists("/config/brokers/1") is None

    on_broker(tmp_path, scenario)
