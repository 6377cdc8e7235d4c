"""``Admin`` with older and newer brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import pytest
from admin_scene import AdminScene, error_codes

from kreplica.client import Admin, Cluster, TopicPartition
from kreplica.client.admin import (
    ConfigChange,
    ConfigResource,
    ElectionType,
    GroupState,
    GroupType,
    MemberToRemove,
)
from kreplica.client.client_runtime import runtime_of
from kreplica.client.connection import Connection
from kreplica.client.connections import Connections
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import UnsupportedVersion
from kreplica.client_core.offsets import LATEST, MAX_TIMESTAMP, CommittedOffset
from kreplica.errors import ErrorCode
from kreplica.wire.messages import (
    APIS,
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    METADATA,
    Api,
)

T = TypeVar("T")

MISSING = {api.key for api in (DESCRIBE_CLUSTER, CONSUMER_GROUP_DESCRIBE)}
OLDEST = {METADATA.key: 4, FIND_COORDINATOR.key: 1}
"""Highest supported version of each required API; the brokers support only the lowest version of all other APIs."""


class OldConnections(Connections):
    """Connections to brokers that support only the oldest versions."""

    async def _open(self, address: Address) -> Connection:
        connection = await super()._open(address)
        connection.versions = {
            key: (lowest, OLDEST.get(key, lowest))
            for key, (lowest, _) in connection.versions.items()
            if key not in MISSING
        }
        return connection


class OldCluster(Cluster):
    """A cluster client of brokers that support only the oldest versions."""

    def new_connections(self) -> Connections:
        return OldConnections(self.runtime, self.options)


def test_oldest_brokers(scene: AdminScene) -> None:
    """Supported operations succeed; unsupported ones raise an error and are not emulated."""
    cluster = OldCluster(scene.brokers.bootstrap_servers, runtime=runtime_of(scene.brokers.host("old").runtime))
    admin, old, setting = Admin(cluster), TopicPartition("ancient", 0), ConfigResource.topic("ancient")

    async def scenario() -> None:
        assert (await admin.create_topic("ancient", 1, 3)).topic_id == UUID(int=0)
        assert (await admin.describe_topic("ancient")).partitions[0].eligible_leaders is None
        assert (await admin.describe_cluster()).brokers[2].rack == "b"
        assert (await admin.broker_versions([1]))[1].apis["Metadata"] == (0, 4)
        assert (await admin.describe_features()).epoch == -1
        for impossible in (admin.delete_topic(UUID(int=3)), admin.describe_topic(UUID(int=3))):
            with pytest.raises(UnsupportedVersion, match="ids"):
                await impossible
        (await admin.create_partitions({"ancient": 2})).raise_first()
        await admin.alter_config(setting, [ConfigChange.set("retention.ms", "5000")])
        entry = (await admin.describe_config(setting, synonyms=True, documentation=True))["retention.ms"]
        assert (entry.value, entry.documentation, entry.is_default) == ("5000", None, False)

        await scene.produce(old, [b"a", b"b"])
        assert (await admin.list_offsets({old: LATEST}))[old].offset == 2
        assert isinstance((await admin.list_offsets({old: MAX_TIMESTAMP})).failed[old], UnsupportedVersion)
        assert (await admin.delete_records({old: 1}))[old] == 1
        assert (await admin.describe_log_dirs([1]))[1][0].total_bytes == -1
        assert (await admin.elect_leaders([old]))[old] is False
        unclean = await admin.elect_leaders([old], type=ElectionType.UNCLEAN)
        assert isinstance(unclean.failed[old], UnsupportedVersion)

        await scene.join_classic("ancients", "i", "ancient")
        described = await admin.describe_groups(["ancients", "nobody"])
        assert (described["ancients"].type, described["ancients"].members[0].instance_id) == (GroupType.CLASSIC, None)
        assert error_codes(described.failed) == {"nobody": ErrorCode.GROUP_ID_NOT_FOUND}
        assert [each.state for each in await admin.list_groups()] == [GroupState.UNKNOWN]
        with pytest.raises(UnsupportedVersion, match="by state"):
            await admin.list_groups(states=[GroupState.EMPTY])
        (refused,) = (await admin.remove_members("ancients", [MemberToRemove("i")])).failed.values()
        assert isinstance(refused, UnsupportedVersion)
        (await scene.admin.remove_members("ancients")).raise_first()
        (await admin.alter_group_offsets("ancients", {old: 1})).raise_first()
        offsets = (await admin.list_group_offsets({"ancients": [old], "nobody": [old]})).raise_first()
        assert offsets == {"ancients": {old: CommittedOffset(1)}, "nobody": {}}
        (await admin.delete_groups(["ancients"])).raise_first()
        assert await admin.list_transactions() == []
        (await admin.fence_producers(["t"])).raise_first()
        await admin.delete_topic("ancient")

    scene.run(scenario(), 60)
    scene.run(cluster.close())


class PagingCluster(Cluster):
    """A cluster client of brokers that describe topics page by page."""

    def __init__(self, scene: AdminScene, pages: Mapping[Any, dict[str, Any]]) -> None:
        super().__init__("nowhere:1", runtime=runtime_of(scene.brokers.host("paging").runtime))
        self.sent_requests: list[tuple[list[str], Any]] = []
        self._pages = pages
        self._broker = Connection(self.runtime.reactor, "broker", "me", 1000)
        self._broker.versions = dict.fromkeys(APIS, (0, 0))

    async def at_any(self, attempt: Callable[[Connection], Awaitable[T]]) -> T:
        return await attempt(self._broker)

    async def request(self, connection: Connection, api: Api, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert (connection, api) == (self._broker, DESCRIBE_TOPIC_PARTITIONS)
        cursor = body["cursor"]
        self.sent_requests.append(([topic["name"] for topic in body["topics"]], cursor))
        return self._pages[None if cursor is None else (cursor["topic_name"], cursor["partition_index"])]


def test_topics_are_described_page_by_page(scene: AdminScene) -> None:
    """The description of a topic that spans several pages contains the partitions of all of them."""

    def row(name: str, *partitions: int, error_code: int = 0) -> dict[str, Any]:
        rows = [
            {
                "error_code": 0,
                "partition_index": each,
                "leader_id": 1,
                "replica_nodes": [1, 2],
                "isr_nodes": [1],
                "eligible_leader_replicas": [2],
            }
            for each in partitions
        ]
        return {"error_code": error_code, "name": name, "topic_id": UUID(int=1), "partitions": rows}

    cursors = [{"topic_name": "b", "partition_index": 1}, {"topic_name": "b", "partition_index": 2}]
    pages = {
        None: {"topics": [row("a", 0), row("b", 0)], "next_cursor": cursors[0]},
        ("b", 1): {"topics": [row("b", 1)], "next_cursor": cursors[1]},
        ("b", 2): {"topics": [row("b", 2), row("c", error_code=3)], "next_cursor": None},
    }
    cluster = PagingCluster(scene, pages)
    described = scene.run(Admin(cluster).describe_topics(["c", "b", "a"]))
    assert [each.partition for each in described["b"].partitions] == [0, 1, 2]
    assert described["b"].partitions[2].eligible_leaders == (2,)
    assert len(described["a"].partitions) == 1
    assert error_codes(described.failed) == {"c": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.sent_requests == [(["a", "b", "c"], None), (["b", "c"], cursors[0]), (["b", "c"], cursors[1])]
