"""Fetch requests of followers, and of clients that claim to be followers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.client.connection import Connection
from kreplica.replication import Partition
from kreplica.server.fetch.partition_reads import PartitionReads
from kreplica.wire.messages import CREATE_TOPICS, FETCH
from tests.support.broker_scene import Row, Scene, batch, create_body, fetch_body, on_broker

PARTITIONS = 40


def rows_of(answer: Row) -> dict[int, Row]:
    return {row["partition_index"]: row for topic in answer["responses"] for row in topic["partitions"]}


def many(offsets: dict[int, int], topic_id: Any, **changes: Any) -> Row:
    """Return a fetch of several partitions of one topic."""
    body = fetch_body("t", 0, topic_id=topic_id, **changes)
    body["topics"][0]["partitions"] = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for number, offset in offsets.items()
    ]
    if not offsets:
        body["topics"] = []
    return body


async def open_session(scene: Scene, connection: Connection | None = None, **changes: Any) -> int:
    """Open a session over all partitions; none of them has data to read."""
    body = many(dict.fromkeys(range(PARTITIONS), 0), scene.broker.metadata.topic_id("t"), session_epoch=0, **changes)
    answer = await scene.ask(FETCH, body, 17, connection)
    assert len(rows_of(answer)) == PARTITIONS
    return int(answer["session_id"])


def test_broker_without_a_replica_is_refused(tmp_path: Path) -> None:
    """The error is UNKNOWN_LEADER_EPOCH (75), which is retriable: the leader may learn of the new replica later."""

    async def scenario(scene: Scene) -> None:
        body = create_body("t", -1, factor=-1)
        body["topics"][0]["assignments"] = [{"partition_index": 0, "broker_ids": [1]}]
        await scene.ask(CREATE_TOPICS, body)
        await scene.produce("t", batch(b"x"))
        epoch = scene.standalone.brokers[1].fence.broker_epoch
        for version, follower in (
            (12, {"replica_id": 2}),
            (17, {"replica_state": {"replica_id": 2, "replica_epoch": epoch}}),
        ):
            body = fetch_body("t", 0, topic_id=scene.broker.metadata.topic_id("t"), **follower)
            row = rows_of(await scene.ask(FETCH, body, version))[0]
            assert (row["error_code"], len(row["records"])) == (75, 0)

    on_broker(tmp_path, scenario, brokers=2)


def test_fetch_that_claims_to_be_a_follower_is_refused(tmp_path: Path) -> None:
    """Only a broker's registered process may fetch as that broker, and thereby advance high watermarks (error 77)."""

    async def scenario(scene: Scene) -> None:
        body = create_body("t", -1, factor=-1)
        body["topics"][0]["assignments"] = [{"partition_index": 0, "broker_ids": [1, 2]}]
        await scene.ask(CREATE_TOPICS, body)
        await scene.produce("t", batch(b"x"))
        led = next(iter(scene.broker.partitions)).leader_state
        assert led is not None
        assert led.known_end_offset(2) == 1
        epoch = scene.standalone.brokers[1].fence.broker_epoch
        topic_id = scene.broker.metadata.topic_id("t")
        for replica, claimed in ((2, 1), (2, epoch + 1), (2, 2**63 - 1), (2, -1), (7, 1), (7, -1)):
            follower = {"replica_state": {"replica_id": replica, "replica_epoch": claimed}}
            forged = fetch_body("t", 1000, topic_id=topic_id, **follower)
            answer = await scene.ask(FETCH, forged, 17)
            assert (answer["error_code"], list(answer["responses"])) == (77, []), (replica, claimed)
        forged = fetch_body("t", 1000, topic_id=topic_id, replica_id=2)
        assert (await scene.ask(FETCH, forged, 12))["error_code"] == 77, "an older version, without the epoch"
        assert led.known_end_offset(2) == 1
        assert (await scene.produce("t", batch(b"y")))["error_code"] == 0, "the real follower continues"

    on_broker(tmp_path, scenario, brokers=2)


async def replicated_partition(scene: Scene) -> Partition:
    """Create a partition with one record that broker 2 has acknowledged, and return the replica of leader 1."""
    body = create_body("t", -1, factor=-1)
    body["topics"][0]["assignments"] = [{"partition_index": 0, "broker_ids": [1, 2]}]
    await scene.ask(CREATE_TOPICS, body)
    await scene.produce("t", batch(b"x"))
    return next(iter(scene.broker.partitions))


def test_idle_follower_acknowledges_again_after_its_progress_was_discarded(tmp_path: Path) -> None:
    """A leader that stops and leads again in the same epoch learns the follower's offset without a new record."""

    async def scenario(scene: Scene) -> None:
        partition = await replicated_partition(scene)
        await scene.until(lambda: bool(partition.watchers), "the follower's fetch waits")
        partition.stop()
        partition.lead(partition.leadership)
        assert partition.role.known_end_offset(2) is None
        await scene.until(lambda: partition.role.known_end_offset(2) == 1, "the follower acknowledges again")

    on_broker(tmp_path, scenario, brokers=2)


def test_error_is_repeated_until_the_follower_requests_the_partition_again(tmp_path: Path) -> None:
    """A request that arrived before this broker became leader is not an acknowledgement to the later leader."""

    async def scenario(scene: Scene) -> None:
        partition = await replicated_partition(scene)
        other = scene.standalone.brokers[1]
        key, epoch = partition.topic_partition, partition.leadership.leader_epoch
        await other.partitions.stop_replica(key, leader_epoch=epoch, delete=False)
        topic_id = scene.broker.metadata.topic_id("t")
        follower = {"replica_state": {"replica_id": 2, "replica_epoch": other.fence.broker_epoch}}

        async def error(offsets: dict[int, int], **session: int) -> tuple[int, int]:
            answer = await scene.ask(FETCH, many(offsets, topic_id, **session, **follower), 17)
            return answer["session_id"], rows_of(answer)[0]["error_code"]

        partition.stop()
        number, code = await error({0: 1}, session_epoch=0)
        assert code == 6
        partition.lead(partition.leadership)
        assert await error({}, session_id=number, session_epoch=1) == (number, 75)
        assert partition.role.known_end_offset(2) is None
        assert await error({0: 1}, session_id=number, session_epoch=2) == (number, 0)
        assert partition.role.known_end_offset(2) == 1

    on_broker(tmp_path, scenario, brokers=2)


def test_session_reads_only_changed_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle partition costs nothing, whatever the size of the session."""
    reads: list[int] = []
    original = PartitionReads.read

    def counted(self: PartitionReads, reader: Any, wanted: Any, *arguments: Any, **options: Any) -> Any:
        reads.append(wanted.partition)
        return original(self, reader, wanted, *arguments, **options)

    monkeypatch.setattr(PartitionReads, "read", counted)

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", PARTITIONS)
        topic_id = scene.broker.metadata.topic_id("t")
        number = await open_session(scene)
        assert sorted(reads) == list(range(PARTITIONS))
        reads.clear()
        other = await scene.connect()
        waiting = scene.ask(FETCH, many({}, topic_id, session_id=number, session_epoch=1, wait_ms=60_000), 17, other)
        await scene.produce("t", batch(b"x"), partition=7)
        answer = await waiting
        assert {partition: len(row["records"]) > 0 for partition, row in rows_of(answer).items()} == {7: True}
        assert set(reads) == {7}
        reads.clear()
        again = rows_of(await scene.ask(FETCH, many({}, topic_id, session_id=number, session_epoch=2), 17))
        assert set(again) == {7}, "the client requested the same offset again, so it gets the same records"
        moved = many({7: 1}, topic_id, session_id=number, session_epoch=3)
        assert rows_of(await scene.ask(FETCH, moved, 17)) == {}
        assert set(reads) == {7}

    on_broker(tmp_path, scenario)


def test_next_fetch_of_a_session_ends_the_pending_one(tmp_path: Path) -> None:
    """The client need not wait for a pending fetch before it sends changes; responses keep their order."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", PARTITIONS)
        topic_id = scene.broker.metadata.topic_id("t")
        await scene.produce("t", batch(b"x"), partition=3)
        body = many({0: 0}, topic_id, session_epoch=0)
        number = (await scene.ask(FETCH, body, 17))["session_id"]
        first = scene.connection.request(
            FETCH, 17, many({}, topic_id, session_id=number, session_epoch=1, wait_ms=60_000)
        )
        second = scene.connection.request(
            FETCH, 17, many({3: 0}, topic_id, session_id=number, session_epoch=2, wait_ms=60_000)
        )
        began = scene.reactor.seconds()
        assert rows_of(await first) == {}
        assert set(rows_of(await second)) == {3}
        assert scene.reactor.seconds() - began < 5

    on_broker(tmp_path, scenario)


def test_byte_limit_does_not_starve_partitions(tmp_path: Path) -> None:
    """Partitions that did not fit into one response come first in the next ones."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", PARTITIONS)
        topic_id = scene.broker.metadata.topic_id("t")
        for number in range(PARTITIONS):
            await scene.produce("t", batch(b"x" * 1000), partition=number)
        body = many(dict.fromkeys(range(PARTITIONS), 0), topic_id, session_epoch=0, max_bytes=5000)
        answer = await scene.ask(FETCH, body, 17)
        number, epoch = answer["session_id"], 1
        seen: dict[int, int] = {}
        while len(seen) < PARTITIONS:
            got = {p: len(row["records"]) for p, row in rows_of(answer).items() if row["records"]}
            whole = [p for p, size in got.items() if size > 1000]
            assert whole, "each response advances some partitions"
            for partition in whole:
                seen[partition] = seen.get(partition, 0) + 1
            moved = many(dict.fromkeys(whole, 1), topic_id, session_id=number, session_epoch=epoch, max_bytes=5000)
            answer = await scene.ask(FETCH, moved, 17)
            epoch += 1
        assert set(seen.values()) == {1}
        assert epoch <= PARTITIONS // 4 + 2

    on_broker(tmp_path, scenario)


def test_client_that_closes_during_a_pending_fetch_leaves_nothing(tmp_path: Path) -> None:
    """The client's session is kept for a reconnect; the pending request is dropped."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", PARTITIONS)
        topic_id = scene.broker.metadata.topic_id("t")
        other = await scene.connect()
        number = await open_session(scene, other)
        lost = other.request(FETCH, 17, many({}, topic_id, session_id=number, session_epoch=1, wait_ms=60_000))
        lost.addErrback(lambda _: None)
        partitions = list(scene.broker.partitions)
        await scene.until(lambda: all(p.watchers for p in partitions), "the fetch waits")
        connections = scene.broker.server.resources.connections
        before = len(connections)
        await other.close()
        await scene.until(lambda: len(connections) < before, "the broker notices")
        await scene.produce("t", batch(b"x"), partition=7)
        answer = await scene.ask(FETCH, many({}, topic_id, session_id=number, session_epoch=2), 17)
        assert set(rows_of(answer)) == {7}

    on_broker(tmp_path, scenario)


def test_next_fetch_of_a_session_supersedes_one_that_is_still_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier fetch is answered at once with the data read so far; then the later one is answered."""
    monkeypatch.setattr("kreplica.server.fetch.delayed_fetch.INLINE_SECONDS_MAX", -1.0)
    monkeypatch.setattr("kreplica.server.fetch.delayed_fetch.READS_PER_CLOCK_CHECK", 1)

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", PARTITIONS)
        topic_id = scene.broker.metadata.topic_id("t")
        number = await open_session(scene)
        everything = many(dict.fromkeys(range(PARTITIONS), 0), topic_id, session_id=number, session_epoch=1)
        first = Deferred.fromCoroutine(scene.ask(FETCH, everything, 17))
        second = scene.ask(FETCH, many({}, topic_id, session_id=number, session_epoch=2), 17)
        assert (await second)["error_code"] == 0
        assert (await first)["error_code"] == 0

    on_broker(tmp_path, scenario)
