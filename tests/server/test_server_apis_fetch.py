"""Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords over the wire."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kreplica.model import ZERO_UUID
from kreplica.wire.batches import iter_headers
from kreplica.wire.messages import DELETE_RECORDS, DELETE_TOPICS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tests.support.broker_scene import NOW_MS, Row, Scene, batch, fetch_body, on_broker

PROMPT_S = 0.5
"""Far below the waits that these tests ask for, far above what a busy machine needs."""


def offsets(row: Row) -> list[int]:
    """The base offsets of the batches in an answer; one that is cut short is left out."""
    return [header.base_offset for _, header in iter_headers(memoryview(row["records"]), incomplete_last=True)]


async def filled(scene: Scene, name: str = "t", batches: int = 3) -> None:
    """A topic of so many batches of two records each."""
    await scene.make_topic(name)
    for i in range(batches):
        row = await scene.produce(name, batch(b"a" * 50, b"b" * 50, timestamp_ms=NOW_MS + 10 * i))
        assert row["base_offset"] == 2 * i


def test_a_fetch_starts_with_the_batch_that_holds_its_offset(tmp_path: Path) -> None:
    """Whole batches come; the client leaves out the records before its offset."""

    async def story(scene: Scene) -> None:
        await filled(scene)
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

    on_broker(tmp_path, story)


def test_limits_on_bytes_hold_except_for_the_first_batch(tmp_path: Path) -> None:
    """However small the limits, the first batch comes whole, so that a consumer always gets on (KIP-74)."""

    async def story(scene: Scene) -> None:
        await filled(scene)
        await filled(scene, "u")
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
        assert sizes == [size + 10, 0], "the second partition has no room, and says so with nothing"

    on_broker(tmp_path, story)


def test_a_waiting_fetch_is_answered_as_soon_as_something_is_produced(tmp_path: Path) -> None:
    """A long poll costs no latency: it ends with the produce, not with its time."""

    async def story(scene: Scene) -> None:
        await filled(scene)
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

    on_broker(tmp_path, story)


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(tmp_path: Path) -> None:
    """min_bytes is waited for, over several produces, for max_wait_ms at most; errors are not waited with."""

    async def story(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        other = await scene.connect()
        size = len(batch(b"v"))
        waiting = other.request(FETCH, 12, fetch_body("t", 0, wait_ms=60_000, min_bytes=2 * size))
        partition = next(p for p in scene.broker.partitions if p.topic_partition == ("t", 0))
        await scene.until(lambda: bool(partition.watchers), "the fetch waits")
        await scene.produce("t", batch(b"v"))  # what waits has been looked at before this is answered
        assert partition.watchers, "one batch is not enough"
        await scene.produce("t", batch(b"v"))
        assert len((await waiting)["responses"][0]["partitions"][0]["records"]) == 2 * size

        started = scene.reactor.seconds()
        row = await scene.fetch("t", 0, wait_ms=50, min_bytes=2**31 - 1, max_bytes=2**31 - 1)
        assert 0.05 <= scene.reactor.seconds() - started < PROMPT_S
        assert len(row["records"]) == 2 * size, "what is there comes when the time is up"

        started = scene.reactor.seconds()
        await scene.fetch("t", 0, wait_ms=60_000, min_bytes=10_000, max_bytes=size)
        await scene.fetch("t", 5, wait_ms=60_000)
        await scene.fetch("t", 0, wait_ms=60_000, min_bytes=0, partition=1)
        await scene.fetch("nobody", 0, wait_ms=60_000)
        assert scene.reactor.seconds() - started < PROMPT_S

    on_broker(tmp_path, story)


def test_a_fetch_waiting_for_a_topic_that_is_deleted_is_answered(tmp_path: Path) -> None:
    """Nobody waits for a topic that is gone."""

    async def story(scene: Scene) -> None:
        from kreplica.wire.messages import DELETE_TOPICS

        await filled(scene)
        other = await scene.connect()
        waiting = other.request(FETCH, 12, fetch_body("t", 6, wait_ms=60_000))
        (partition,) = scene.broker.partitions
        await scene.until(lambda: bool(partition.watchers), "the fetch waits")
        answer = await scene.ask(DELETE_TOPICS, {"topic_names": ["t"], "timeout_ms": 5000}, 5)
        assert answer["responses"][0]["error_code"] == 0
        assert (await waiting)["responses"][0]["partitions"][0]["error_code"] in (3, 6)

    on_broker(tmp_path, story)


def test_leader_epochs_fence(tmp_path: Path) -> None:
    """Who knows an older epoch is fenced, who knows a newer one is told to wait (KIP-320)."""

    async def restart(scene: Scene) -> None:
        await filled(scene)

    async def story(scene: Scene) -> None:
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
    on_broker(tmp_path, story)


def test_the_end_of_each_leader_epoch_is_known(tmp_path: Path) -> None:
    """Epoch 0 ended where epoch 1 began; the running one ends at the log's end; later ones are unknown."""

    async def before(scene: Scene) -> None:
        await filled(scene)

    async def story(scene: Scene) -> None:
        await scene.produce("t", batch(b"in epoch 1"))
        rows = [{"partition": 0, "leader_epoch": epoch} for epoch in (0, 1, 2)] + [{"partition": 9, "leader_epoch": 0}]
        answer = await scene.ask(OFFSET_FOR_LEADER_EPOCH, {"topics": [{"topic": "t", "partitions": rows}]})
        found = [
            (row["error_code"], row["leader_epoch"], row["end_offset"]) for row in answer["topics"][0]["partitions"]
        ]
        assert found == [(0, 0, 6), (0, 1, 7), (0, -1, -1), (3, -1, -1)]
        row = await scene.fetch("t", 7, last_fetched_epoch=0, epoch=1, wait_ms=60_000)
        assert row["diverging_epoch"] == {"epoch": 0, "end_offset": 6}, "the client's log left ours at 6"
        assert not row["records"]

    on_broker(tmp_path, before)
    on_broker(tmp_path, story)


def test_a_leader_finds_its_partition_by_id_before_the_metadata_comes(tmp_path: Path) -> None:
    """The controller names leaders first and publishes metadata afterwards; followers ask in between."""

    async def story(scene: Scene) -> None:
        topic_id = (await scene.make_topic("t"))["topic_id"]
        await scene.produce("t", batch(b"v"))
        scene.broker.metadata._names.clear()
        answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=topic_id), 13)
        assert [row["error_code"] for row in answer["responses"][0]["partitions"]] == [0]
        scene.broker.metadata._names[topic_id] = "t"
        await scene.ask(DELETE_TOPICS, {"topics": [{"name": "t", "topic_id": ZERO_UUID}], "timeout_ms": 5000})
        answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=topic_id), 13)
        assert [row["error_code"] for row in answer["responses"][0]["partitions"]] == [100]

    on_broker(tmp_path, story)


def test_topic_ids_name_topics_from_version_13_on(tmp_path: Path) -> None:
    """An id that nobody has is unknown (100); it is said at once, however long the client would wait."""

    async def story(scene: Scene) -> None:
        await filled(scene)
        topic_id = scene.broker.metadata.topic_id("t")
        for asked, code in ((topic_id, 0), (UUID(int=77), 100), (UUID(int=0), 100)):
            answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=asked, wait_ms=60_000), 13)
            (topic,) = answer["responses"]
            assert topic["topic_id"] == asked
            assert topic["partitions"][0]["error_code"] == code

    on_broker(tmp_path, story)


def test_a_fetch_session_names_only_what_is_new(tmp_path: Path) -> None:
    """Inside a session requests and answers hold changes alone; partitions can be forgotten; epochs must follow."""

    async def story(scene: Scene) -> None:
        await filled(scene)
        await filled(scene, "u")

        async def ask(session_id: int, epoch: int, *topics: Row, forget: str | None = None) -> Row:
            body = fetch_body("t", 0, session_id=session_id, session_epoch=epoch)
            body["topics"] = list(topics)
            body["forgotten_topics_data"] = [{"topic": forget, "partitions": [0]}] if forget else []
            return await scene.ask(FETCH, body, 12)

        def named(answer: Row) -> list[tuple[str, list[int]]]:
            return [(topic["topic"], offsets(topic["partitions"][0])) for topic in answer["responses"]]

        t, u = fetch_body("t", 0)["topics"], fetch_body("u", 6)["topics"]
        first = await ask(0, 0, *t, *u)
        session = first["session_id"]
        assert session != 0
        assert named(first) == [("t", [0, 2, 4]), ("u", [])], "the first answer names all"
        assert named(await ask(session, 1, *fetch_body("t", 6)["topics"])) == []
        await scene.produce("u", batch(b"new"))
        assert named(await ask(session, 2)) == [("u", [6])]
        assert (await ask(session, 2))["error_code"] == 71, "an epoch that was used already"
        assert named(await ask(session, 3, forget="u")) == []
        await scene.produce("u", batch(b"newer"))
        assert named(await ask(session, 4)) == [], "u is forgotten"
        assert (await ask(session + 1, 1))["error_code"] == 70
        closed = await ask(session, -1, *t)
        assert (closed["session_id"], named(closed)) == (0, [("t", [0, 2, 4])])
        assert (await ask(session, 5))["error_code"] == 70, "the session is closed"
        assert len(scene.broker.fetch_sessions) == 0

    on_broker(tmp_path, story)


def test_places_of_a_log_are_found_exactly(tmp_path: Path) -> None:
    """Latest, earliest, the highest timestamp, the local and tiered ends, and any time: to the record."""

    async def story(scene: Scene) -> None:
        await filled(scene)
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

    on_broker(tmp_path, story)


def test_records_can_be_deleted_up_to_the_high_watermark(tmp_path: Path) -> None:
    """The log's start moves forward, never back; what lies before it is out of range, also after a restart."""

    async def delete(scene: Scene, offset: int, partition: int = 0) -> tuple[int, int]:
        rows = [{"partition_index": partition, "offset": offset}]
        body = {"topics": [{"name": "t", "partitions": rows}], "timeout_ms": 1000}
        (row,) = (await scene.ask(DELETE_RECORDS, body))["topics"][0]["partitions"]
        return row["error_code"], row["low_watermark"]

    async def story(scene: Scene) -> None:
        await filled(scene)
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

    on_broker(tmp_path, story)
    on_broker(tmp_path, after)


def test_read_committed_sees_all_that_is_not_transactional(tmp_path: Path) -> None:
    """Without transactions both isolation levels see the same; only the list of aborted ones differs."""

    async def story(scene: Scene) -> None:
        await filled(scene)
        for isolation, aborted in ((0, None), (1, [])):
            row = await scene.fetch("t", 0, isolation=isolation)
            assert (offsets(row), row["aborted_transactions"]) == ([0, 2, 4], aborted)

    on_broker(tmp_path, story)


def test_clients_before_0_10_1_list_the_starts_of_segments(tmp_path: Path) -> None:
    """Version 0 returns the latest of them first, with the end of the log, and no more than was asked for."""

    async def listed(scene: Scene, timestamp: int, count: int = 100, partition: int = 0) -> tuple[int, list[int]]:
        rows = [{"partition_index": partition, "timestamp": timestamp, "max_num_offsets": count}]
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
        (row,) = (await scene.ask(LIST_OFFSETS, body, 0))["topics"][0]["partitions"]
        return row["error_code"], row["old_style_offsets"]

    async def story(scene: Scene) -> None:
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

    on_broker(tmp_path, story)
