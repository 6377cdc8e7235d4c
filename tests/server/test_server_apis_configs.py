"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs; changes take effect at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kreplica.wire.messages import (
    ALTER_CONFIGS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
)
from tests.support.broker_scene import Row, Scene, batch, on_broker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    scene: Scene, kind: int, name: str, keys: list[str] | None = None, *, full: bool = False
) -> tuple[int, dict[str, Row]]:
    body = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": full,
        "include_documentation": full,
    }
    (result,) = (await scene.ask(DESCRIBE_CONFIGS, body))["results"]
    return result["error_code"], {config["name"]: config for config in result["configs"]}


async def values(scene: Scene, name: str = "t", kind: int = TOPIC) -> dict[str, Any]:
    """Return the settings that differ from the defaults."""
    _, configs = await describe(scene, kind, name)
    return {key: row["value"] for key, row in configs.items() if row["config_source"] in (1, 2, 3)}


async def alter(
    scene: Scene, name: str, *operations: tuple[str, int, str | None], kind: int = TOPIC, validate_only: bool = False
) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in operations]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = await scene.ask(INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": validate_only})
    code: int = answer["responses"][0]["error_code"]
    assert code == 0 or answer["responses"][0]["error_message"]
    return code


async def replace(scene: Scene, name: str, kind: int = TOPIC, **settings: str | None) -> int:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = await scene.ask(ALTER_CONFIGS, {"resources": resources, "validate_only": False})
    code: int = answer["responses"][0]["error_code"]
    return code


def test_topic_settings_are_described_with_their_source(tmp_path: Path) -> None:
    """Every setting has its value, source, synonyms and documentation."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", retention_ms="1000")
        code, configs = await describe(scene, TOPIC, "t", full=True)
        assert code == 0
        assert len(configs) > 20
        own = configs["retention.ms"]
        assert (own["value"], own["config_source"], own["read_only"], own["is_sensitive"]) == ("1000", 1, False, False)
        assert own["synonyms"][0] == {"name": "retention.ms", "value": "1000", "source": 1}
        assert own["synonyms"][-1]["source"] == 5
        file = configs["segment.bytes"]
        assert (file["value"], file["config_source"]) == ("2000000", 4)
        assert file["synonyms"][0] == {"name": "log.segment.bytes", "value": "2000000", "source": 4}
        assert configs["cleanup.policy"]["config_source"] == 5
        assert all(config["documentation"] and config["config_type"] for config in configs.values())
        _, plain = await describe(scene, TOPIC, "t", ["retention.ms", "no.such.setting"])
        assert list(plain) == ["retention.ms"]
        assert (plain["retention.ms"]["synonyms"], plain["retention.ms"]["documentation"]) == ([], None)
        assert (await describe(scene, TOPIC, "t", []))[1] == {}
        assert (await describe(scene, TOPIC, "nobody"))[0] == 3
        assert (await describe(scene, 99, "t"))[0] == 42

    on_broker(tmp_path, scenario, "log.segment.bytes=2000000")


def test_broker_settings_are_described(tmp_path: Path) -> None:
    """A broker describes its own settings, with the source of those in its file, and rejects other brokers'."""

    async def scenario(scene: Scene) -> None:
        code, configs = await describe(scene, BROKER, "1", full=True)
        assert code == 0
        assert (configs["broker.id"]["value"], configs["broker.id"]["read_only"]) == ("1", True)
        assert configs["num.partitions"]["config_source"] == 5
        assert (await describe(scene, BROKER, "2"))[0] == 42
        assert (await describe(scene, BROKER, "")) == (0, {})

    on_broker(tmp_path, scenario)


def test_single_settings_are_set_deleted_appended_and_subtracted(tmp_path: Path) -> None:
    """IncrementalAlterConfigs changes lists item by item and sets other settings or resets them to their default
    (KIP-339)."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        assert await alter(scene, "t", ("retention.ms", SET, "1"), ("segment.ms", SET, "2")) == 0
        assert await values(scene) == {"retention.ms": "1", "segment.ms": "2"}
        assert await alter(scene, "t", ("retention.ms", DELETE, None)) == 0
        assert await alter(scene, "t", ("cleanup.policy", APPEND, "compact")) == 0
        assert await values(scene) == {"segment.ms": "2", "cleanup.policy": "delete,compact"}
        assert await alter(scene, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
        assert await alter(scene, "t", ("segment.ms", DELETE, None), validate_only=True) == 0
        assert await values(scene) == {"segment.ms": "2", "cleanup.policy": "compact"}
        refused = [
            (("retention.ms", APPEND, "1"), 40),
            (("no.such", SET, "1"), 40),
            (("retention.ms", SET, "soon"), 40),
            (("retention.ms", SET, None), 42),
            (("retention.ms", 9, "1"), 42),
        ]
        for operation, code in refused:
            assert await alter(scene, "t", operation) == code, operation
        assert await alter(scene, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)) == 42
        assert await alter(scene, "nobody", ("retention.ms", SET, "1")) == 3
        assert await alter(scene, "t", ("retention.ms", SET, "1"), kind=77) == 42
        assert await values(scene) == {"segment.ms": "2", "cleanup.policy": "compact"}

    on_broker(tmp_path, scenario)


def test_alter_configs_replaces_all_settings_of_a_topic(tmp_path: Path) -> None:
    """Settings that are not in the request get their default value; an invalid request changes nothing."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", retention_ms="1", segment_ms="2")
        assert await replace(scene, "t", retention_ms="3") == 0
        assert await values(scene) == {"retention.ms": "3"}
        assert await replace(scene, "t", segment_ms="x") == 40
        assert await replace(scene, "t", segment_ms=None) == 42
        assert await values(scene) == {"retention.ms": "3"}
        body = {
            "resources": [{"resource_type": TOPIC, "resource_name": "t", "configs": []}] * 2,
            "validate_only": False,
        }
        answer = await scene.ask(ALTER_CONFIGS, body)
        assert [row["error_code"] for row in answer["responses"]] == [42, 42]

    on_broker(tmp_path, scenario)


def test_setting_too_large_for_zookeeper_is_refused(tmp_path: Path) -> None:
    """The client gets an error, and the broker's ZooKeeper session survives."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        huge = ",".join(f"{i}:{i}" for i in range(150_000))
        assert await alter(scene, "t", ("leader.replication.throttled.replicas", SET, huge)) in (40, 42)
        assert await alter(scene, "t", ("retention.ms", SET, "1")) == 0

    on_broker(tmp_path, scenario)


def test_changed_setting_takes_effect_at_once(tmp_path: Path) -> None:
    """The next Produce is checked against the new limit, retention uses the new time, and both survive a restart."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", segment_bytes="1048576")
        await scene.make_topic("other", retention_ms="-1")
        large = batch(b"x" * 5000)
        assert (await scene.produce("t", large))["error_code"] == 0
        assert await alter(scene, "t", ("max.message.bytes", SET, "1000")) == 0
        assert (await scene.produce("t", large))["error_code"] == 10
        assert (await scene.produce("other", large))["error_code"] == 0
        assert await alter(scene, "t", ("max.message.bytes", DELETE, None), ("retention.ms", SET, "1")) == 0
        assert (await scene.produce("t", large))["error_code"] == 0
        await scene.broker.directories.periodic_work.delete_expired()
        assert (await scene.fetch("t", 2))["log_start_offset"] == 2, "records of 2023 are older than one millisecond"
        assert (await scene.fetch("other", 0))["log_start_offset"] == 0
        assert await alter(scene, "t", ("max.message.bytes", SET, "2000")) == 0
        assert (await scene.produce("t", large))["error_code"] == 10

    async def after(scene: Scene) -> None:
        assert (await scene.produce("t", batch(b"x" * 3000)))["error_code"] == 10
        assert await values(scene) == {"retention.ms": "1", "max.message.bytes": "2000", "segment.bytes": "1048576"}

    on_broker(tmp_path, scenario)
    on_broker(tmp_path, after)


def test_broker_default_for_topics_can_change(tmp_path: Path) -> None:
    """A cluster-wide default applies at once to the topics that do not override it."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        await scene.make_topic("own", max_message_bytes="100000")
        large = batch(b"x" * 5000)
        assert await alter(scene, "", ("message.max.bytes", SET, "1000"), kind=BROKER) == 0
        assert (await scene.produce("t", large))["error_code"] == 10
        assert (await scene.produce("own", large))["error_code"] == 0
        assert await alter(scene, "1", ("message.max.bytes", SET, "10000"), kind=BROKER) == 0
        assert (await scene.produce("t", large))["error_code"] == 0
        assert await values(scene, "1", BROKER) == {"message.max.bytes": "10000"}
        assert await alter(scene, "1", ("log.dirs", SET, "/tmp"), kind=BROKER) == 42
        assert await alter(scene, "2", ("message.max.bytes", SET, "1"), kind=BROKER) == 42

    on_broker(tmp_path, scenario)


def test_custom_broker_settings_are_kept(tmp_path: Path) -> None:
    """Settings with unknown names are kept and described without their value, as in Kafka, and can be deleted."""

    async def scenario(scene: Scene) -> None:
        assert await alter(scene, "1", ("my.plugin.key", SET, "secret"), kind=BROKER) == 0
        assert await alter(scene, "", ("my.plugin.key", SET, "of all"), ("other.key", SET, "1"), kind=BROKER) == 0
        for name, shown in (("1", {"my.plugin.key": 2, "other.key": 3}), ("", {"my.plugin.key": 3, "other.key": 3})):
            resource = {"resource_type": BROKER, "resource_name": name, "configuration_keys": None}
            answer = await scene.ask(DESCRIBE_CONFIGS, {"resources": [resource], "include_synonyms": True})
            rows = {row["name"]: row for row in answer["results"][0]["configs"] if row["name"] in shown}
            assert {key: row["config_source"] for key, row in rows.items()} == shown
            assert all(row["value"] is None and row["is_sensitive"] for row in rows.values())
        assert await alter(scene, "1", ("my.plugin.key", DELETE, None), kind=BROKER) == 0
        data, _ = await scene.zookeeper.get_data("/config/brokers/1")
        assert b"plugin" not in data

    on_broker(tmp_path, scenario)


def test_resources_without_settings_are_refused_by_name(tmp_path: Path) -> None:
    """The error for broker loggers and groups names the resource type."""

    async def scenario(scene: Scene) -> None:
        config = {"name": "x", "value": "1", "config_operation": SET}
        for kind, name in ((8, "BROKER_LOGGER"), (32, "GROUP"), (99, "unknown type 99")):
            resource = {"resource_type": kind, "resource_name": "1", "configuration_keys": None, "configs": [config]}
            described = await scene.ask(DESCRIBE_CONFIGS, {"resources": [resource]})
            altered = await scene.ask(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
            for row in (*described["results"], *altered["responses"]):
                assert row["error_code"] == 42
                assert name in row["error_message"]

    on_broker(tmp_path, scenario)


def test_setting_changed_by_another_tool_takes_effect(tmp_path: Path) -> None:
    """Kafka's tools write the settings and a notification; every broker applies them and removes old notifications."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        zookeeper = scene.zookeeper
        await zookeeper.create("/config/changes/no_number", b"?")
        await zookeeper.create("/config/changes/config_change_", b"{not json", sequence=True)
        await zookeeper.create("/config/topics/t", b'{"version":1,"config":{"max.message.bytes":"1000"}}')
        change = b'{"version":2,"entity_path":"topics/t"}'
        await zookeeper.create("/config/changes/config_change_", change, sequence=True)
        settings = scene.broker.dynamic_settings
        await scene.until(lambda: settings.log_config("t").max_message_bytes == 1000, "the broker applied it")
        assert (await scene.produce("t", batch(b"x" * 5000)))["error_code"] == 10
        await zookeeper.set_data("/config/topics/t", b"{not json")
        await zookeeper.create("/config/changes/config_change_", change, sequence=True)
        await scene.until(lambda: settings.log_config("t").max_message_bytes > 1000, "the default applies again")
        assert (await scene.produce("t", batch(b"x" * 5000)))["error_code"] == 0
        assert await alter(scene, "t", ("retention.ms", SET, "1")) == 0, "an unreadable value is replaced"
        assert await values(scene) == {"retention.ms": "1"}

    on_broker(tmp_path, scenario, errors_logged=True)


def test_settings_of_a_deleted_topic_are_removed(tmp_path: Path) -> None:
    """Neither the znode nor a cached copy remains."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", retention_ms="1")
        await scene.ask(DELETE_TOPICS, {"topic_names": ["t"], "timeout_ms": 5000}, 5)
        assert await scene.zookeeper.get_children("/config/topics") == []
        assert not scene.broker.dynamic_settings.knows("t")

    on_broker(tmp_path, scenario)


def test_log_directories_are_described(tmp_path: Path) -> None:
    """Each directory is described with its partitions and their sizes: all partitions or the requested ones."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        await scene.make_topic("u")
        records = batch(b"v" * 100)
        await scene.produce("t", records, partition=1)

        async def ask(topics: list[Row] | None) -> dict[str, list[tuple[int, int, int]]]:
            answer = await scene.ask(DESCRIBE_LOG_DIRS, {"topics": topics})
            (directory,) = answer["results"]
            assert directory["log_dir"] == str(tmp_path / "broker-1")
            return {
                topic["name"]: [
                    (p["partition_index"], p["partition_size"], p["offset_lag"]) for p in topic["partitions"]
                ]
                for topic in directory["topics"]
            }

        assert await ask(None) == {"t": [(0, 0, 0), (1, len(records), 0)], "u": [(0, 0, 0)]}
        assert await ask([{"topic": "t", "partitions": [1, 7]}]) == {"t": [(1, len(records), 0)]}
        assert await ask([]) == {}

    on_broker(tmp_path, scenario)


def test_describe_cluster_returns_broker_endpoints_only(tmp_path: Path) -> None:
    """A request for the controllers' endpoints is rejected, because the cluster has no separate controllers."""

    async def scenario(scene: Scene) -> None:
        answer = await scene.ask(DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False, "endpoint_type": 2})
        assert (answer["error_code"], answer["brokers"]) == (115, [])

    on_broker(tmp_path, scenario)
