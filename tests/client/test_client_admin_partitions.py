"""Cluster, partitions, log directories and transactions through ``Admin``."""

from __future__ import annotations

import pytest
from admin_scene import AdminScene, error_codes

from kreplica.client import TopicPartition
from kreplica.client.admin import (
    HIGH_WATERMARK,
    ElectionType,
    NewTopic,
    Replica,
    TransactionState,
)
from kreplica.client_core.errors import BrokerRefused, UnsupportedVersion
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from kreplica.errors import ErrorCode


def test_the_cluster(scene: AdminScene) -> None:
    """The cluster is described with racks, versions and features."""

    async def scenario() -> None:
        described = await scene.admin.describe_cluster()
        assert {each.broker_id: each.rack for each in described.brokers.values()} == {1: "a", 2: "b", 3: "a"}
        assert described.brokers[2].address == ("broker-2", 9092)
        assert described.controller_id == scene.brokers.controller()
        assert described.cluster_id
        assert described.operations is None
        features = await scene.admin.describe_features()
        assert features.finalized["transaction.version"] == features.supported["transaction.version"]._replace(lowest=2)
        versions = (await scene.admin.broker_versions()).raise_first()
        assert sorted(versions) == [1, 2, 3]
        assert versions[1].apis["Metadata"] == (0, 12)
        unreachable = await scene.admin.broker_versions([9], timeout_s=1.0)
        assert "broker 9" in str(unreachable.failed[9])

    scene.run(scenario())


def test_offsets_and_deletion_of_records(scene: AdminScene) -> None:
    """Each request goes to the partition's leader; a missing partition does not affect the others."""
    first, second, nope = TopicPartition("records", 0), TopicPartition("records", 1), TopicPartition("records", 7)
    none = TopicPartition("nope", 0)

    async def scenario() -> None:
        await scene.admin.create_topic("records", 2, 3)
        await scene.produce(first, [b"a", b"b", b"c"])
        times = {first: 1001, second: EARLIEST, nope: LATEST, none: LATEST}
        offsets = await scene.admin.list_offsets(times)
        assert (
            offsets[first] == (await scene.admin.list_offsets({first: 1001}, isolation=Isolation.READ_COMMITTED))[first]
        )
        assert (offsets[first].offset, offsets[first].timestamp_ms) == (1, 1001)
        assert offsets[second].offset == 0
        assert error_codes(offsets.failed) == dict.fromkeys((nope, none), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (await scene.admin.list_offsets({first: MAX_TIMESTAMP}))[first].offset == 2

        deleted = await scene.admin.delete_records({first: 2, second: 9, nope: 0})
        assert deleted.succeeded == {first: 2}
        assert error_codes(deleted.failed) == {
            second: ErrorCode.OFFSET_OUT_OF_RANGE,
            nope: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await scene.admin.delete_records({first: HIGH_WATERMARK}))[first] == 3
        assert (await scene.admin.list_offsets({first: EARLIEST}))[first].offset == 3

    scene.run(scenario(), 60)


def test_leaders_and_replicas_move(scene: AdminScene) -> None:
    """Replicas are reassigned, reassignments are listed, and the preferred leader is elected after a restart."""
    moved, other = TopicPartition("moved", 0), TopicPartition("moved", 1)
    nope = TopicPartition("moved", 7)

    async def move() -> None:
        (await scene.admin.create_topics([NewTopic("moved", assignment={0: [2, 1], 1: [3, 1]})])).raise_first()
        requested = await scene.admin.alter_reassignments({moved: [3, 2], other: None, nope: [1]})
        assert error_codes(requested.failed) == {
            other: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            nope: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        ongoing = await scene.admin.list_reassignments([moved])
        assert all((each.adding, each.removing) == ((3,), (1,)) for each in ongoing.values())

        await scene.until(lambda: scene.admin.list_reassignments(), lambda moves: not moves)
        assert set((await scene.admin.describe_topic("moved")).partitions[0].replicas) == {3, 2}

    async def elect() -> None:
        await scene.until(
            lambda: scene.admin.describe_topic("moved"),
            lambda topic: all(len(each.in_sync) == 2 for each in topic.partitions),
        )
        elected = await scene.admin.elect_leaders([moved, other, nope])
        assert elected.succeeded == {moved: True, other: True}
        assert error_codes(elected.failed) == {nope: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (await scene.admin.elect_leaders([moved]))[moved] is False
        assert len(await scene.admin.elect_leaders(type=ElectionType.UNCLEAN)) == 0
        await scene.admin.elect_leaders()
        assert [each.leader for each in (await scene.admin.describe_topic("moved")).partitions] == [3, 3]

    scene.run(move(), 60)
    scene.run(scene.brokers.brokers[3].stop())
    scene.run(scene.brokers.brokers[3].start())
    scene.brokers.wait_in_sync("moved", [0, 1])
    scene.run(elect(), 60)


def test_log_directories(scene: AdminScene) -> None:
    """Each broker reports its own directories; moves between directories are refused."""
    stored = TopicPartition("stored", 0)

    async def scenario() -> None:
        await scene.admin.create_topic("stored", 1, 3)
        await scene.produce(stored, [b"a" * 1000])
        described = (await scene.admin.describe_log_dirs(partitions=[stored])).raise_first()
        assert sorted(described) == [1, 2, 3]
        leader = await scene.cluster.leader(stored)
        (directory,) = described[leader]
        assert list(directory.replicas) == [stored]
        assert directory.replicas[stored].size_bytes > 1000
        assert directory.error is None
        assert directory.usable_bytes <= directory.total_bytes
        moved = await scene.admin.alter_replica_log_dirs({Replica(stored, 1): "/elsewhere"})
        rejected = moved.failed[Replica(stored, 1)]
        assert isinstance(rejected, BrokerRefused)
        assert rejected.code is ErrorCode.LOG_DIR_NOT_FOUND

    scene.run(scenario(), 60)


def test_transactions(scene: AdminScene) -> None:
    """Open transactions are listed, a hanging transaction is aborted, and a producer is fenced."""
    partition, hung = TopicPartition("transactions", 0), TopicPartition("transactions", 1)

    async def scenario() -> None:
        admin = scene.admin
        await admin.create_topic("transactions", 2, 3)
        producer_id, epoch = await scene.begin_transaction("t", partition)
        batch = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
        await scene.produce(partition, [b"a"], **batch)
        other_id, other_epoch = await scene.begin_transaction("other", None)
        await scene.produce(hung, [b"a"], **batch | {"producer_id": other_id, "producer_epoch": other_epoch})

        (ongoing,) = await admin.list_transactions(states=[TransactionState.ONGOING])
        assert (ongoing.transactional_id, ongoing.producer_id) == ("t", producer_id)
        assert [each.transactional_id for each in await admin.list_transactions()] == ["other", "t"]
        assert await admin.list_transactions(longer_than_ms=900_000) == []
        with pytest.raises(UnsupportedVersion, match="filters by pattern"):
            await admin.list_transactions(pattern="t.*")
        described = await admin.describe_transactions(["t", "nope"])
        assert described["t"].partitions == {partition}
        assert described["t"].timeout_ms == 600_000
        assert error_codes(described.failed) == {"nope": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}

        follower = next(each for each in (1, 2, 3) if each != scene.brokers.leader_of("transactions", 1))
        assert (await admin.describe_producers([hung], broker_id=follower))[hung][0].transaction_start_offset == 0
        hanging = await admin.hanging_transactions([partition, hung], open_for_ms=10)
        assert {each: producers[0].producer_id for each, producers in hanging.items()} == {hung: other_id}
        await admin.abort_transaction(hung, hanging[hung][0])
        assert await admin.hanging_transactions([partition, hung], open_for_ms=10) == {}
        with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.abort_transaction(TopicPartition("transactions", 9), hanging[hung][0])

        fenced = await admin.fence_producers(["t"])
        assert fenced["t"].producer_epoch > epoch
        with pytest.raises(BrokerRefused, match=r"PRODUCER_EPOCH|FENCED"):
            await scene.produce(partition, [b"b"], **batch | {"base_sequence": 1})
        assert await admin.list_transactions(states=[TransactionState.ONGOING]) == []

    scene.run(scenario(), 60)
