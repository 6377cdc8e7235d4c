"""Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords over the wire."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kreplica.model import ZERO_UUID
from kreplica.wire.batches import iter_headers
from kreplica.wire.messages import DELETE_RECORDS, DELETE_TOPICS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tests.support.broker_scene import NOW_MS, Row, Scene, batch, fetch_body, on_broker

PROMPT_S = 0.5
"""A time far below the max_wait_ms of these tests, and far above the time that a busy machine needs."""


def offsets(row: Row) -> list[int]:
    """Return the base offsets of the complete batches in a response."""
    return [header.base_offset for _, header in iter_headers(memoryview(row["records"]), incomplete_last=True)]


async def create_filled_topic(scene: Scene, name: str = "t", batches: int = 3) -> None:
    """Create a topic with this number of batches of two records each."""
    await scene.make_topic(name)
    for i in range(batches):
        row = await scene.produce(name, batch(b"a" * 50, b"b" * 50, timestamp_ms=NOW_MS + 10 * i))
        assert row["base_offset"] == 2 * i


def test_fetch_starts_with_the_batch_that_contains_its_offset(tmp_path: Path) -> None:
    """Whole batches are returned; the client skips the records before its offset."""

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        assert [offsets(await scene.fetch("t", offset)) for offset in range(7)] == [
            [0, 2, 4],
            [0, 2, 4],
            [2, 4],
            [2, 4],
            [4],
            [4],
            [],
        ]
        row = await scene.fetch("t", 6)
        assert (row["error_code"], row["high_watermark"], row["last_stable_offset"], row["log_start_offset"]) == (
            0,
            6,
            6,
            0,
        )
        for offset in (7, 2**62, -1):
            assert (await scene.fetch("t", offset))["error_code"] == 1, offset

    on_broker(tmp_path, scenario)


def test_byte_limits_apply_except_to_the_first_batch(tmp_path: Path) -> None:
    """The first batch is returned whole even above the limits, so that a consumer always makes progress (KIP-74)."""

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        await create_filled_topic(scene, "u")
        size = len(batch(b"a" * 50, b"b" * 50))
        for limit in (0, 1, size - 1, size):
            assert len((await scene.fetch("t", 0, max_bytes=limit))["records"]) == size, limit
            assert len((await scene.fetch("t", 0, partition_max_bytes=limit))["records"]) == size, limit
        assert len((await scene.fetch("t", 0, max_bytes=size * 2 + 5))["records"]) == size * 2 + 5
        assert (await scene.fetch("t", 0, max_bytes=-1, partition_max_bytes=-1))["error_code"] == 0
        body = fetch_body("t", 0, max_bytes=size + 10)
        body["topics"] += fetch_body("u", 0)["topics"]
        answer = await scene.ask(FETCH, body, 12)
        sizes = [len(topic["partitions"][0]["records"]) for topic in answer["responses"]]
        assert sizes == [size + 10, 0], "nothing of the second partition fits into the response"

    on_broker(tmp_path, scenario)


def test_long_poll_ends_as_soon_as_data_is_produced(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        other = await scene.connect()
        started = scene.reactor.seconds()
        waiting = other.request(FETCH, 12, fetch_body("t", 6, wait_ms=60_000))
        (partition,) = scene.broker.partitions
        await scene.until(lambda: bool(partition.watchers), "the fetch waits")
        await scene.produce("t", batch(b"new"))
        row = (await waiting)["responses"][0]["partitions"][0]
        assert (offsets(row), row["high_watermark"]) == ([6], 7)
        assert scene.reactor.seconds() - started < PROMPT_S
        assert not partition.watchers

    on_broker(tmp_path, scenario)


def test_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    """The fetch waits for several batches, but at most max_wait_ms; a partition with an error ends the wait."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        other = await scene.connect()
        size = len(batch(b"v"))
        waiting = other.request(FETCH, 12, fetch_body("t", 0, wait_ms=60_000, min_bytes=2 * size))
        partition = next(p for p in scene.broker.partitions if p.topic_partition == ("t", 0))
        await scene.until(lambda: bool(partition.watchers), "the fetch waits")
        await scene.produce("t", batch(b"v"))  # the pending fetch has been re-evaluated before this response
        assert partition.watchers, "one batch is not enough"
        await scene.produce("t", batch(b"v"))
        assert len((await waiting)["responses"][0]["partitions"][0]["records"]) == 2 * size

        started = scene.reactor.seconds()
        row = await scene.fetch("t", 0, wait_ms=50, min_bytes=2**31 - 1, max_bytes=2**31 - 1)
        assert 0.05 <= scene.reactor.seconds() - started < PROMPT_S
        assert len(row["records"]) == 2 * size, "the data available is returned after max_wait_ms"

        started = scene.reactor.seconds()
        await scene.fetch("t", 0, wait_ms=60_000, min_bytes=10_000, max_bytes=size)
        await scene.fetch("t", 5, wait_ms=60_000)
        await scene.fetch("t", 0, wait_ms=60_000, min_bytes=0, partition=1)
        await scene.fetch("nobody", 0, wait_ms=60_000)
        assert scene.reactor.seconds() - started < PROMPT_S

    on_broker(tmp_path, scenario)


def test_pending_fetch_ends_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        from kreplica.wire.messages import DELETE_TOPICS

        await create_filled_topic(scene)
        other = await scene.connect()
        waiting = other.request(FETCH, 12, fetch_body("t", 6, wait_ms=60_000))
        (partition,) = scene.broker.partitions
        await scene.until(lambda: bool(partition.watchers), "the fetch waits")
        answer = await scene.ask(DELETE_TOPICS, {"topic_names": ["t"], "timeout_ms": 5000}, 5)
        assert answer["responses"][0]["error_code"] == 0
        assert (await waiting)["responses"][0]["partitions"][0]["error_code"] in (3, 6)

    on_broker(tmp_path, scenario)


def test_leader_epochs_are_fenced(tmp_path: Path) -> None:
    """An older epoch is fenced; a newer one gets UNKNOWN_LEADER_EPOCH, which is retriable (KIP-320)."""

    async def restart(scene: Scene) -> None:
        await create_filled_topic(scene)

    async def scenario(scene: Scene) -> None:
        (partition,) = scene.broker.partitions
        epoch = partition.leadership.leader_epoch
        assert epoch == 1, "a restart is a new epoch"
        wanted = {epoch - 1: 74, epoch: 0, epoch + 1: 75, -1: 0}
        for asked, code in wanted.items():
            assert (await scene.fetch("t", 0, epoch=asked))["error_code"] == code, asked
            rows = [{"partition_index": 0, "current_leader_epoch": asked, "timestamp": -1}]
            body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
            answer = await scene.ask(LIST_OFFSETS, body)
            assert answer["topics"][0]["partitions"][0]["error_code"] == code, asked
            rows = [{"partition": 0, "current_leader_epoch": asked, "leader_epoch": 0}]
            answer = await scene.ask(OFFSET_FOR_LEADER_EPOCH, {"topics": [{"topic": "t", "partitions": rows}]})
            assert answer["topics"][0]["partitions"][0]["error_code"] == code, asked

    on_broker(tmp_path, restart)
    on_broker(tmp_path, scenario)


def test_end_offset_of_each_leader_epoch_is_returned(tmp_path: Path) -> None:
    """Epoch 0 ends at the start of epoch 1, and the current epoch at the log end offset; later epochs are unknown."""

    async def before(scene: Scene) -> None:
        await create_filled_topic(scene)

    async def scenario(scene: Scene) -> None:
        await scene.produce("t", batch(b"in epoch 1"))
        rows = [{"partition": 0, "leader_epoch": epoch} for epoch in (0, 1, 2)] + [{"partition": 9, "leader_epoch": 0}]
        answer = await scene.ask(OFFSET_FOR_LEADER_EPOCH, {"topics": [{"topic": "t", "partitions": rows}]})
        found = [
            (row["error_code"], row["leader_epoch"], row["end_offset"]) for row in answer["topics"][0]["partitions"]
        ]
        assert found == [(0, 0, 6), (0, 1, 7), (0, -1, -1), (3, -1, -1)]
        row = await scene.fetch("t", 7, last_fetched_epoch=0, epoch=1, wait_ms=60_000)
        assert row["diverging_epoch"] == {"epoch": 0, "end_offset": 6}, "the client's log diverged from ours at 6"
        assert not row["records"]

    on_broker(tmp_path, before)
    on_broker(tmp_path, scenario)


def test_leader_finds_a_partition_by_topic_id_before_its_metadata(tmp_path: Path) -> None:
    """The controller sends LeaderAndIsr before UpdateMetadata; followers fetch in between."""

    async def scenario(scene: Scene) -> None:
        topic_id = (await scene.make_topic("t"))["topic_id"]
        await scene.produce("t", batch(b"v"))
        scene.broker.metadata._names.clear()
        answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=topic_id), 13)
        assert [row["error_code"] for row in answer["responses"][0]["partitions"]] == [0]
        scene.broker.metadata._names[topic_id] = "t"
        await scene.ask(DELETE_TOPICS, {"topics": [{"name": "t", "topic_id": ZERO_UUID}], "timeout_ms": 5000})
        answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=topic_id), 13)
        assert [row["error_code"] for row in answer["responses"][0]["partitions"]] == [100]

    on_broker(tmp_path, scenario)


def test_fetch_identifies_topics_by_id_from_version_13(tmp_path: Path) -> None:
    """An unknown ID gets UNKNOWN_TOPIC_ID (100) at once, whatever max_wait_ms is."""

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        topic_id = scene.broker.metadata.topic_id("t")
        for asked, code in ((topic_id, 0), (UUID(int=77), 100), (UUID(int=0), 100)):
            answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=asked, wait_ms=60_000), 13)
            (topic,) = answer["responses"]
            assert topic["topic_id"] == asked
            assert topic["partitions"][0]["error_code"] == code

    on_broker(tmp_path, scenario)


def test_fetch_session_requests_and_responses_contain_changes_only(tmp_path: Path) -> None:
    """Partitions can be removed from a session; its epochs must be consecutive."""

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        await create_filled_topic(scene, "u")

        async def ask(session_id: int, epoch: int, *topics: Row, forget: str | None = None) -> Row:
            body = fetch_body("t", 0, session_id=session_id, session_epoch=epoch)
            body["topics"] = list(topics)
            body["forgotten_topics_data"] = [{"topic": forget, "partitions": [0]}] if forget else []
            return await scene.ask(FETCH, body, 12)

        def partitions_by_topic(answer: Row) -> list[tuple[str, list[int]]]:
            return [(topic["topic"], offsets(topic["partitions"][0])) for topic in answer["responses"]]

        t, u = fetch_body("t", 0)["topics"], fetch_body("u", 6)["topics"]
        first = await ask(0, 0, *t, *u)
        session = first["session_id"]
        assert session != 0
        assert partitions_by_topic(first) == [("t", [0, 2, 4]), ("u", [])], "the first response contains all partitions"
        assert partitions_by_topic(await ask(session, 1, *fetch_body("t", 6)["topics"])) == []
        await scene.produce("u", batch(b"new"))
        assert partitions_by_topic(await ask(session, 2)) == [("u", [6])]
        assert (await ask(session, 2))["error_code"] == 71, "an epoch that has already been used"
        assert partitions_by_topic(await ask(session, 3, forget="u")) == []
        await scene.produce("u", batch(b"newer"))
        assert partitions_by_topic(await ask(session, 4)) == [], "u is forgotten"
        assert (await ask(session + 1, 1))["error_code"] == 70
        closed = await ask(session, -1, *t)
        assert (closed["session_id"], partitions_by_topic(closed)) == (0, [("t", [0, 2, 4])])
        assert (await ask(session, 5))["error_code"] == 70, "the session is closed"
        assert len(scene.broker.fetch_sessions) == 0

    on_broker(tmp_path, scenario)


def test_list_offsets_finds_exact_records(tmp_path: Path) -> None:
    """It finds the latest and earliest offset, the highest timestamp, the local and tiered ends, and any timestamp."""

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        asked = {
            -1: (0, 6, -1),
            -2: (0, 0, -1),
            -3: (0, 5, NOW_MS + 21),
            -4: (0, 0, -1),
            -5: (0, -1, -1),
            -6: (42, -1, -1),
            0: (0, 0, NOW_MS),
            NOW_MS: (0, 0, NOW_MS),
            NOW_MS + 1: (0, 1, NOW_MS + 1),
            NOW_MS + 2: (0, 2, NOW_MS + 10),
            NOW_MS + 11: (0, 3, NOW_MS + 11),
            NOW_MS + 21: (0, 5, NOW_MS + 21),
            NOW_MS + 22: (0, -1, -1),
            2**62: (0, -1, -1),
        }
        for timestamp, expected in asked.items():
            rows = [{"partition_index": 0, "timestamp": timestamp}]
            body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
            (row,) = (await scene.ask(LIST_OFFSETS, body))["topics"][0]["partitions"]
            assert (row["error_code"], row["offset"], row["timestamp"]) == expected, timestamp
        rows = [{"partition_index": 5, "timestamp": -1}]
        body = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": "t", "partitions": rows}]}
        assert (await scene.ask(LIST_OFFSETS, body))["topics"][0]["partitions"][0]["error_code"] == 3
        await scene.make_topic("empty")
        for timestamp, offset in ((-1, 0), (-2, 0), (-3, -1), (0, -1)):
            rows = [{"partition_index": 0, "timestamp": timestamp}]
            body = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": "empty", "partitions": rows}]}
            (row,) = (await scene.ask(LIST_OFFSETS, body))["topics"][0]["partitions"]
            assert (row["error_code"], row["offset"]) == (0, offset)

    on_broker(tmp_path, scenario)


def test_delete_records_up_to_the_high_watermark(tmp_path: Path) -> None:
    """The log start offset only grows; offsets below it are out of range, even after a restart."""

    async def delete(scene: Scene, offset: int, partition: int = 0) -> tuple[int, int]:
        rows = [{"partition_index": partition, "offset": offset}]
        body = {"topics": [{"name": "t", "partitions": rows}], "timeout_ms": 1000}
        (row,) = (await scene.ask(DELETE_RECORDS, body))["topics"][0]["partitions"]
        return row["error_code"], row["low_watermark"]

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        assert await delete(scene, 3) == (0, 3)
        assert await delete(scene, 1) == (0, 3)
        assert (await scene.fetch("t", 2))["error_code"] == 1
        row = await scene.fetch("t", 3)
        assert (offsets(row), row["log_start_offset"]) == ([2, 4], 3)
        assert await delete(scene, 7) == (1, -1)
        assert await delete(scene, -2) == (1, -1)
        assert await delete(scene, 0, 8) == (3, -1)

    async def after(scene: Scene) -> None:
        assert (await scene.fetch("t", 3))["log_start_offset"] == 3
        assert await delete(scene, -1) == (0, 6)
        assert (await scene.produce("t", batch(b"v")))["base_offset"] == 6

    on_broker(tmp_path, scenario)
    on_broker(tmp_path, after)


def test_records_of_compacted_and_internal_topics_are_not_deleted(tmp_path: Path) -> None:
    """The errors are Kafka's: POLICY_VIOLATION without ``delete`` in cleanup.policy, and INVALID_TOPIC_EXCEPTION."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("compacted", cleanup_policy="compact")
        await scene.make_topic("both", cleanup_policy="compact,delete")
        codes = {}
        for name in ("compacted", "both", "__consumer_offsets"):
            rows = [{"partition_index": 0, "offset": -1}]
            body = {"topics": [{"name": name, "partitions": rows}], "timeout_ms": 1000}
            (row,) = (await scene.ask(DELETE_RECORDS, body))["topics"][0]["partitions"]
            codes[name] = row["error_code"]
        assert codes == {"compacted": 44, "both": 0, "__consumer_offsets": 17}

    on_broker(tmp_path, scenario)


def test_isolation_levels_agree_without_transactions(tmp_path: Path) -> None:
    """Both levels return the same records; only the list of aborted transactions differs."""

    async def scenario(scene: Scene) -> None:
        await create_filled_topic(scene)
        for isolation, aborted in ((0, None), (1, [])):
            row = await scene.fetch("t", 0, isolation=isolation)
            assert (offsets(row), row["aborted_transactions"]) == ([0, 2, 4], aborted)

    on_broker(tmp_path, scenario)


def test_list_offsets_version_0_returns_segment_starts(tmp_path: Path) -> None:
    """Clients before 0.10.1 get the newest segments first, with the log end offset, limited by the requested number."""

    async def listed(scene: Scene, timestamp: int, count: int = 100, partition: int = 0) -> tuple[int, list[int]]:
        rows = [{"partition_index": partition, "timestamp": timestamp, "max_num_offsets": count}]
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
        (row,) = (await scene.ask(LIST_OFFSETS, body, 0))["topics"][0]["partitions"]
        return row["error_code"], row["old_style_offsets"]

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", **{"segment.bytes": "1048576"})
        assert await listed(scene, -1) == (0, [0])
        for number in range(3):
            await scene.produce("t", batch(b"x" * 700_000, b"y", timestamp_ms=NOW_MS + 10 * number))
        assert await listed(scene, -1) == (0, [6, 4, 2, 0])
        assert await listed(scene, -1, 2) == (0, [6, 4])
        assert await listed(scene, -2) == (0, [0])
        assert await listed(scene, NOW_MS + 15) == (0, [2, 0])
        assert await listed(scene, NOW_MS - 1) == (0, [])
        assert await listed(scene, -1, 0) == (0, [])
        assert await listed(scene, -1, -5) == (0, [])
        assert await listed(scene, -1, partition=9) == (3, [])

    on_broker(tmp_path, scenario)
