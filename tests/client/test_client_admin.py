"""Topics and configurations through ``Admin``."""

from __future__ import annotations

from uuid import UUID

import pytest
from admin_scene import AdminScene

from kreplica.client.admin import (
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ConfigType,
    NewTopic,
)
from kreplica.client_core.errors import BrokerRefused
from kreplica.errors import ErrorCode


def test_topics(scene: AdminScene) -> None:
    """Topics are created, described by name and ID, expanded and deleted; each topic has its own outcome."""

    admin = scene.admin

    async def scenario() -> None:
        new_topics = [
            NewTopic("counted", 3, 2, {"cleanup.policy": "compact"}),
            NewTopic("assigned", assignment={0: [3, 1], 1: [1, 2]}),
            NewTopic("bad name", 1, 1),
            NewTopic("too-many", 1, 9),
        ]
        planned = await admin.create_topics(new_topics, validate_only=True)
        created = await admin.create_topics(new_topics)
        assert list(planned) == list(created) == [topic.name for topic in new_topics]
        for outcomes in (planned, created):
            assert {name: error.code for name, error in outcomes.failed.items()} == {
                "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
                "too-many": ErrorCode.INVALID_REPLICATION_FACTOR,
            }
        counted = created["counted"]
        assert (counted.partitions, counted.replication_factor) == (3, 2)
        assert counted.configs["cleanup.policy"].value == "compact"
        assert planned["counted"].topic_id == UUID(int=0)
        with pytest.raises(BrokerRefused, match="INVALID_TOPIC_EXCEPTION"):
            created.raise_first()
        with pytest.raises(BrokerRefused, match="TOPIC_ALREADY_EXISTS"):
            await admin.create_topic("counted")

        described = await admin.describe_topics(["assigned", counted.topic_id, "nope", UUID(int=7)])
        assert described["assigned"].partitions[0].replicas == (3, 1)
        assert described["assigned"].partitions[1].leader == 1
        assert described[counted.topic_id].name == "counted"
        assert {item: error.code for item, error in described.failed.items()} == {
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            UUID(int=7): ErrorCode.UNKNOWN_TOPIC_ID,
        }
        assert [topic.name for topic in await admin.list_topics()] == ["assigned", "counted"]

        expanded = await admin.create_partitions(
            {"counted": 4, "assigned": 3, "nope": 3}, assignments={"assigned": [[2, 3]]}
        )
        assert set(expanded.failed) == {"nope"}
        assert (await admin.describe_topic("assigned")).partitions[2].replicas == (2, 3)
        assert len((await admin.describe_topic("counted")).partitions) == 4
        fewer = await admin.create_partitions({"counted": 2}, validate_only=True)
        assert fewer.failed["counted"].code is ErrorCode.INVALID_PARTITIONS

        deleted = await admin.delete_topics([counted.topic_id, "assigned", "nope"])
        assert {item: error.code for item, error in deleted.failed.items()} == {
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert await admin.list_topics() == []

    scene.run(scenario())


def test_settings(scene: AdminScene) -> None:
    """Configuration values are set, appended to, subtracted from and reset, and are reported with their sources."""
    topic, broker, nope = ConfigResource.topic("settings"), ConfigResource.broker(2), ConfigResource.topic("nope")

    admin = scene.admin

    async def scenario() -> None:
        await admin.create_topic("settings", 1, 1)
        checked = await admin.alter_configs({topic: [ConfigChange.set("retention.ms", "-7")]}, validate_only=True)
        assert checked.failed[topic].code is ErrorCode.INVALID_CONFIG
        changed = await admin.alter_configs(
            {
                topic: [ConfigChange.set("retention.ms", "5000"), ConfigChange.append("cleanup.policy", "compact")],
                broker: [ConfigChange.set("log.retention.ms", "7000")],
                nope: [ConfigChange.set("retention.ms", "5000")],
            }
        )
        assert {item: error.code for item, error in changed.failed.items()} == {
            nope: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }

        described = (await admin.describe_configs([topic, broker], synonyms=True, documentation=True)).raise_first()
        retention = described[topic]["retention.ms"]
        assert (retention.value, retention.source) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert retention.type is ConfigType.LONG
        assert retention.documentation
        assert retention.synonyms[0].name == "retention.ms"
        assert described[topic]["cleanup.policy"].value == "delete,compact"
        assert described[topic]["segment.bytes"].is_default
        assert described[broker]["log.retention.ms"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
        assert "log.retention.ms" not in await admin.describe_config(ConfigResource.broker(None))

        await admin.alter_config(topic, [ConfigChange.subtract("cleanup.policy", "delete")])
        await admin.alter_config(topic, [ConfigChange.delete("retention.ms")])
        selected = await admin.describe_configs([topic], names=["cleanup.policy", "retention.ms"])
        assert {name: entry.value for name, entry in selected[topic].items()} == {
            "cleanup.policy": "compact",
            "retention.ms": "604800000",
        }
        (await admin.replace_configs({topic: {"retention.ms": "9"}})).raise_first()
        after = await admin.describe_config(topic)
        assert (after["retention.ms"].value, after["cleanup.policy"].value) == ("9", "delete")
        await admin.delete_topic("settings")

    scene.run(scenario())
