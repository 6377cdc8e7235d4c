"""Valid requests in every advertised version of every API get a response."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from group_checks import GROUP_CHECKS
from security_checks import SECURITY_CHECKS
from transaction_checks import TRANSACTION_CHECKS, begin
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from kreplica.model import ZERO_UUID
from kreplica.wire import messages
from kreplica.wire.messages import Api
from tests.support.broker_scene import Scene, batch, create_body, fetch_body, on_broker, produce_body

Check = Callable[[Scene, int], Awaitable[None]]


async def _produce(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.PRODUCE, produce_body("t", batch(b"x")), version)
    (row,) = answer["responses"][0]["partition_responses"]
    assert (row["error_code"], row["index"]) == (0, 0)
    assert row["base_offset"] >= 1


async def _fetch(scene: Scene, version: int) -> None:
    topic_id = scene.broker.metadata.topic_id("t")
    answer = await scene.ask(messages.FETCH, fetch_body("t", 0, topic_id=topic_id), version)
    assert answer.get("error_code", 0) == 0
    (topic,) = answer["responses"]
    assert topic.get("topic", "t") == "t"
    assert topic.get("topic_id", topic_id) == topic_id
    (row,) = topic["partitions"]
    assert row["error_code"] == 0
    assert row["high_watermark"] >= 1
    assert bytes(row["records"])[61:].endswith(b"first\x00") or b"first" in bytes(row["records"])


async def _list_offsets(scene: Scene, version: int) -> None:
    asked = {"partition_index": 0, "timestamp": -2}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [asked]}]}
    answer = await scene.ask(messages.LIST_OFFSETS, body, version)
    (row,) = answer["topics"][0]["partitions"]
    if version == 0:
        assert (row["error_code"], row["old_style_offsets"]) == (0, [0])
        return
    assert (row["error_code"], row["offset"], row["timestamp"]) == (0, 0, -1)


async def _metadata(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.METADATA, {"topics": [{"topic_id": ZERO_UUID, "name": "t"}]}, version)
    (broker,) = answer["brokers"]
    assert (broker["node_id"], broker["host"], broker["port"]) == (1, "127.0.0.1", scene.broker.port)
    (topic,) = answer["topics"]
    assert (topic["name"], topic["error_code"]) == ("t", 0)
    assert [row["leader_id"] for row in topic["partitions"]] == [1]
    assert answer.get("controller_id", 1) == 1
    assert answer.get("cluster_id", "id") is not None


async def _find_coordinator(scene: Scene, version: int) -> None:
    body = {"key": "g", "key_type": 0, "coordinator_keys": ["g", "h"]}
    while True:
        answer = await scene.ask(messages.FIND_COORDINATOR, body, version)
        rows = answer["coordinators"] if version >= 4 else [answer]
        if not any(row["error_code"] for row in rows):
            break
        await scene.sleep(0.05)  # the topic is being created
    assert [(row["node_id"], row["port"]) for row in rows] == [(1, scene.broker.port)] * (2 if version >= 4 else 1)
    assert [row["key"] for row in rows] == ["g", "h"] if version >= 4 else True


async def _api_versions(scene: Scene, version: int) -> None:
    body = {"client_software_name": "x", "client_software_version": "1.0"}
    answer = await scene.ask(messages.API_VERSIONS, body, version)
    assert answer["error_code"] == 0
    assert {row["api_key"] for row in answer["api_keys"]} == set(scene.connection.versions)
    if version >= 3:
        (feature,) = answer["finalized_features"]
        assert (feature["name"], feature["max_version_level"]) == ("transaction.version", 2)


async def _create_topics(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.CREATE_TOPICS, create_body(f"create{version}", 2), version)
    (row,) = answer["topics"]
    assert (row["error_code"], row["name"]) == (0, f"create{version}")
    if version >= 5:
        assert (row["num_partitions"], row["replication_factor"]) == (2, 1)
        assert "retention.ms" in {config["name"] for config in row["configs"]}
    if version >= 7:
        assert row["topic_id"] == scene.broker.metadata.topic_id(f"create{version}")


async def _delete_topics(scene: Scene, version: int) -> None:
    name = f"delete{version}"
    await scene.make_topic(name)
    body = {"topics": [{"name": name, "topic_id": ZERO_UUID}], "topic_names": [name], "timeout_ms": 5000}
    answer = await scene.ask(messages.DELETE_TOPICS, body, version)
    assert [(row["name"], row["error_code"]) for row in answer["responses"]] == [(name, 0)]
    assert (await scene.metadata(name))[name]["error_code"] == 3


async def _delete_records(scene: Scene, version: int) -> None:
    body = {
        "topics": [{"name": "gone", "partitions": [{"partition_index": 0, "offset": 1}]}],
        "timeout_ms": 5000,
    }
    answer = await scene.ask(messages.DELETE_RECORDS, body, version)
    (row,) = answer["topics"][0]["partitions"]
    assert (row["error_code"], row["low_watermark"]) == (0, 1)


async def _init_producer_id(scene: Scene, version: int) -> None:
    body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    answer = await scene.ask(messages.INIT_PRODUCER_ID, body, version)
    assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
    assert answer["producer_id"] >= 0
    first = await begin(scene, f"begins-{version}", version)
    second = await begin(scene, f"begins-{version}", version)
    assert second == first | {"producer_epoch": first["producer_epoch"] + 1}


async def _offset_for_leader_epoch(scene: Scene, version: int) -> None:
    body = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    answer = await scene.ask(messages.OFFSET_FOR_LEADER_EPOCH, body, version)
    (row,) = answer["topics"][0]["partitions"]
    assert (row["error_code"], row["leader_epoch"]) == (0, 0)
    assert row["end_offset"] >= 1


async def _describe_configs(scene: Scene, version: int) -> None:
    body = {
        "resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms"]}],
        "include_synonyms": True,
        "include_documentation": True,
    }
    answer = await scene.ask(messages.DESCRIBE_CONFIGS, body, version)
    (result,) = answer["results"]
    assert (result["error_code"], result["resource_name"]) == (0, "t")
    (config,) = result["configs"]
    assert (config["name"], config["value"]) == ("retention.ms", "604800000")


async def _alter(scene: Scene, api: Api, version: int) -> None:
    config = {"name": "retention.ms", "value": "1000", "config_operation": 0}
    body = {
        "resources": [{"resource_type": 2, "resource_name": "altered", "configs": [config]}],
        "validate_only": False,
    }
    answer = await scene.ask(api, body, version)
    assert [(row["error_code"], row["resource_name"]) for row in answer["responses"]] == [(0, "altered")]


async def _describe_log_dirs(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.DESCRIBE_LOG_DIRS, {"topics": None}, version)
    (directory,) = answer["results"]
    assert directory["error_code"] == 0
    assert "t" in {topic["name"] for topic in directory["topics"]}
    if version >= 4:
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]


async def _alter_replica_log_dirs(scene: Scene, version: int) -> None:
    (directory,) = (each.path for each in scene.broker.partitions.directories.directories)
    topics = [{"name": "t", "partitions": [0, 9]}]
    for path, codes in ((directory, [0, 9]), ("/elsewhere", [57, 57])):
        answer = await scene.ask(messages.ALTER_REPLICA_LOG_DIRS, {"dirs": [{"path": path, "topics": topics}]}, version)
        (topic,) = answer["results"]
        assert topic["topic_name"] == "t"
        assert [row["partition_index"] for row in topic["partitions"]] == [0, 9]
        assert [row["error_code"] for row in topic["partitions"]] == codes


async def _create_partitions(scene: Scene, version: int) -> None:
    body = {
        "topics": [{"name": "grows", "count": 2 + version, "assignments": None}],
        "timeout_ms": 5000,
        "validate_only": False,
    }
    answer = await scene.ask(messages.CREATE_PARTITIONS, body, version)
    assert [(row["name"], row["error_code"]) for row in answer["results"]] == [("grows", 0)]
    assert len((await scene.metadata("grows"))["grows"]["partitions"]) == 2 + version


async def _describe_cluster(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}, version)
    assert (answer["error_code"], answer["controller_id"]) == (0, 1)
    assert len(answer["cluster_id"]) == 22
    assert [row["broker_id"] for row in answer["brokers"]] == [1]


CONTROL = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": -1}


async def _refused_control(scene: Scene, api: Api, version: int, **more: Any) -> None:
    answer = await scene.ask(api, CONTROL | more, version)
    assert answer["error_code"] == 77, "the command does not name this process of the broker"
    answer = await scene.ask(api, CONTROL | {"broker_epoch": scene.broker.fence.broker_epoch} | more, version)
    assert answer["error_code"] == 11, "a controller with epoch 0 was replaced long ago"


async def _alter_configs(scene: Scene, version: int) -> None:
    await _alter(scene, messages.ALTER_CONFIGS, version)


async def _incremental_alter_configs(scene: Scene, version: int) -> None:
    await _alter(scene, messages.INCREMENTAL_ALTER_CONFIGS, version)


async def _leader_and_isr(scene: Scene, version: int) -> None:
    await _refused_control(scene, messages.LEADER_AND_ISR, version, topic_states=[], live_leaders=[])


async def _stop_replica(scene: Scene, version: int) -> None:
    await _refused_control(scene, messages.STOP_REPLICA, version, topic_states=[])


async def _update_metadata(scene: Scene, version: int) -> None:
    await _refused_control(scene, messages.UPDATE_METADATA, version, topic_states=[], live_brokers=[])


async def _controlled_shutdown(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.CONTROLLED_SHUTDOWN, {"broker_id": 9, "broker_epoch": -1}, version)
    assert answer["error_code"] == 8, "there is no broker 9"


async def _elect_leaders(scene: Scene, version: int) -> None:
    body = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 5000}
    answer = await scene.ask(messages.ELECT_LEADERS, body, version)
    assert answer.get("error_code", 0) == 0
    (topic,) = answer["replica_election_results"]
    assert [row["error_code"] for row in topic["partition_result"]] == [84], "its preferred replica leads"


async def _alter_partition_reassignments(scene: Scene, version: int) -> None:
    partitions = [{"partition_index": 0, "replicas": None}]
    body = {"timeout_ms": 5000, "topics": [{"name": "t", "partitions": partitions}]}
    answer = await scene.ask(messages.ALTER_PARTITION_REASSIGNMENTS, body, version)
    assert answer["error_code"] == 0
    assert [row["error_code"] for row in answer["responses"][0]["partitions"]] == [85], "there is nothing to cancel"


async def _list_partition_reassignments(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.LIST_PARTITION_REASSIGNMENTS, {"timeout_ms": 5000, "topics": None}, version)
    assert (answer["error_code"], list(answer["topics"])) == (0, [])


async def _list_config_resources(scene: Scene, version: int) -> None:
    answer = await scene.ask(messages.LIST_CONFIG_RESOURCES, {"resource_types": [4]}, version)
    names = [row["resource_name"] for row in answer["config_resources"]]
    assert (answer["error_code"], names) == (0, ["1"] if version else [])


CHECKS: dict[Api, Check] = {
    messages.PRODUCE: _produce,
    messages.FETCH: _fetch,
    messages.LIST_OFFSETS: _list_offsets,
    messages.METADATA: _metadata,
    messages.LEADER_AND_ISR: _leader_and_isr,
    messages.STOP_REPLICA: _stop_replica,
    messages.UPDATE_METADATA: _update_metadata,
    messages.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    messages.FIND_COORDINATOR: _find_coordinator,
    messages.API_VERSIONS: _api_versions,
    messages.CREATE_TOPICS: _create_topics,
    messages.DELETE_TOPICS: _delete_topics,
    messages.DELETE_RECORDS: _delete_records,
    messages.INIT_PRODUCER_ID: _init_producer_id,
    messages.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    messages.DESCRIBE_CONFIGS: _describe_configs,
    messages.ALTER_CONFIGS: _alter_configs,
    messages.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    messages.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    messages.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    messages.CREATE_PARTITIONS: _create_partitions,
    messages.ELECT_LEADERS: _elect_leaders,
    messages.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    messages.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    messages.DESCRIBE_CLUSTER: _describe_cluster,
    messages.LIST_CONFIG_RESOURCES: _list_config_resources,
    **GROUP_CHECKS,
    **SECURITY_CHECKS,
    **TRANSACTION_CHECKS,
}


def test_every_advertised_version_of_every_api_is_served(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        for name in ("t", "gone", "altered", "grows"):
            await scene.make_topic(name)
        await scene.produce("t", batch(b"first"))
        await scene.produce("gone", batch(b"one", b"two"))
        checks = {api.key: (api, check) for api, check in CHECKS.items()}
        assert set(checks) >= set(scene.connection.versions), "an advertised API has no check in this module"
        for key in sorted(scene.connection.versions):
            api, check = checks[key]
            for version in scene.versions(api):
                try:
                    await check(scene, version)
                except Exception as error:
                    raise AssertionError(f"{api.name} version {version}") from error

    on_broker(tmp_path, scenario)


KAFKA_CLIENT_APIS = frozenset({*range(52), 57, 60, 61, 65, 66, 67, 68, 69})
"""The API keys that Apache Kafka 3.9 with ZooKeeper advertises, except those that only its brokers use (56, 58)."""

LIST_CONFIG_RESOURCES = 74
"""API that Apache Kafka serves only with KRaft; ``test_server_telemetry`` tests keys 71 and 72."""

KIP_896 = {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1}
KIP_896 |= {38: 1, 39: 1, 40: 1, 41: 1}
"""Lowest versions that Apache Kafka 4.3 serves, by API key, if they are not 0."""

ZOOKEEPER_COMMANDS = range(4, 8)
"""Keys of LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown, which Kafka 4 does not have."""


def test_every_api_of_a_kafka_broker_is_advertised(tmp_path: Path) -> None:
    """Clients that infer a broker's version from its APIs detect Kafka 3.9, not an old release.

    All versions that Kafka 4 still serves are advertised, so every client that works with Kafka 4 works here.
    """

    async def scenario(scene: Scene) -> None:
        for key, (lowest, _) in scene.connection.versions.items():
            assert key in ZOOKEEPER_COMMANDS or lowest <= KIP_896.get(key, 0), key
        assert set(scene.connection.versions) == KAFKA_CLIENT_APIS | {LIST_CONFIG_RESOURCES}

    on_broker(tmp_path, scenario)


def test_stopped_broker_leaves_no_file_open(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        for i in range(3):
            await scene.make_topic(f"t{i}", 5)
            await scene.produce(f"t{i}", batch(b"v"))
            await scene.fetch(f"t{i}", 0)

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    on_broker(tmp_path / "first", scenario)  # afterwards, files that the process opens only once are open
    before = open_files()
    on_broker(tmp_path / "second", scenario)
    assert open_files() <= before


def test_replica_is_not_moved_between_directories(tmp_path: Path) -> None:
    """An impossible move is rejected; a move to the replica's current directory succeeds."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        answers = {}
        for directory in scene.broker.partitions.directories.directories:
            body = {"dirs": [{"path": directory.path, "topics": [{"name": "t", "partitions": [0]}]}]}
            answer = await scene.ask(messages.ALTER_REPLICA_LOG_DIRS, body)
            answers[bool(directory.logs)] = answer["results"][0]["partitions"][0]["error_code"]
        assert answers == {True: 0, False: 35}

    on_broker(tmp_path, scenario, f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}")


class Receiver(Protocol):
    """Collects the received bytes."""

    def __init__(self) -> None:
        self.received = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self.received += data


def test_unknown_version_of_api_versions_is_answered_in_version_0(tmp_path: Path) -> None:
    """A newer client learns the supported versions and continues on the same connection."""

    async def scenario(scene: Scene) -> None:
        header = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\xff\xff"
        endpoint = TCP4ClientEndpoint(scene.reactor, "127.0.0.1", scene.broker.port)
        client = await connectProtocol(endpoint, Receiver())
        client.transport.write(len(header).to_bytes(4, "big") + header)
        await scene.until(lambda: len(client.received) >= 4 + 4 + 2 + 4 + 6, "an answer")
        assert client.received[4:8] == (7).to_bytes(4, "big")
        assert client.received[8:] == bytes.fromhex("0023 00000001 0012 0000 0004")
        client.transport.loseConnection()

    on_broker(tmp_path, scenario)


def test_client_software_name_with_invalid_characters_is_refused(tmp_path: Path) -> None:
    """The name appears in metrics and logs, so its characters are restricted (KIP-511)."""

    async def scenario(scene: Scene) -> None:
        body = {"client_software_name": "a b\n", "client_software_version": "1.0"}
        answer = await scene.ask(messages.API_VERSIONS, body)
        assert (answer["error_code"], answer["api_keys"]) == (42, [])

    on_broker(tmp_path, scenario)
