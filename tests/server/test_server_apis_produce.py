"""Produce: validation errors, and the guarantees for idempotent producers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kreplica.client.errors import ConnectionLost
from kreplica.model import TopicPartition
from kreplica.wire.compression import Codec
from kreplica.wire.messages import FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE
from tests.support.broker_scene import NO_ID, Scene, batch, on_broker, produce_body

SEQUENCE_MAX = 2**31 - 1


def with_byte(data: bytes, index: int, value: int) -> bytes:
    return data[:index] + bytes((value,)) + data[index + 1 :]


def test_each_validation_failure_has_its_error_code(tmp_path: Path) -> None:
    """No part of an invalid batch is stored, and the connection stays open."""
    good = batch(b"value")
    transactional = batch(b"v", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    cases: list[tuple[str, bytes | None, int]] = [
        ("a wrong CRC", with_byte(good, 20, good[20] ^ 1), 2),
        ("a changed value", good[:-2] + b"X" + good[-1:], 2),
        ("magic 0", with_byte(good, 16, 0), 87),
        ("magic 1", with_byte(good, 16, 1), 87),
        ("an unknown magic", with_byte(good, 16, 9), 87),
        ("no records", None, 87),
        ("empty records", b"", 87),
        ("half a header", good[:30], 2),
        ("half a batch", good[:-1], 2),
        ("two batches", good + good, 87),
        ("bytes behind the batch", good + b"\x00", 87),
        ("a control batch", batch(b"v", key=b"\x00\x00\x00\x01", control=True), 87),
        ("a transactional batch", transactional, 87),
        ("more than max.message.bytes", batch(b"x" * 3000), 10),
        ("garbage", b"\x02" * 100, 2),
    ]

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", max_message_bytes="2000")
        for what, records, code in cases:
            row = await scene.produce("t", records)
            # Both INVALID_MESSAGE (2) and INVALID_RECORD (87) are acceptable for these bytes.
            allowed = {2, 87} if code in (2, 87) else {code}
            assert row["error_code"] in allowed, (what, row)
            assert row["base_offset"] == -1, what
        row = await scene.produce("t", good)
        assert (row["error_code"], row["base_offset"]) == (0, 0), "refused batches left no bytes in the log"

    on_broker(tmp_path, scenario)


def test_message_format_is_checked_before_other_fields(tmp_path: Path) -> None:
    """A batch in another format gets Kafka 3.9's error, whatever byte it has in place of the attributes."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        for magic, code in ((0, 87), (1, 87), (9, 87), (255, 87)):
            for byte in (0, 4, 7, 0x10, 0x14, 0x20, 0xFF):
                foreign = with_byte(with_byte(batch(b"value"), 16, magic), 22, byte)
                for version in (3, 9):
                    row = await scene.produce("t", foreign, version=version)
                    assert row["error_code"] == code, (magic, byte, version, row)

    on_broker(tmp_path, scenario)


def test_error_of_one_partition_does_not_affect_others(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        good = batch(b"v")
        body = {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": "nobody", "partition_data": [{"index": 0, "records": good}]},
                {"name": "t", "partition_data": [{"index": i, "records": good} for i in (0, 2, -1, 1)]},
            ],
        }
        answer = await scene.ask(PRODUCE, body)
        codes = [[row["error_code"] for row in topic["partition_responses"]] for topic in answer["responses"]]
        assert codes == [[3], [0, 3, 3, 0]]

    on_broker(tmp_path, scenario)


def test_client_writes_to_internal_topics_are_refused(tmp_path: Path) -> None:
    """A client's records could prevent a coordinator from loading its partition, so all kinds are rejected."""

    async def scenario(scene: Scene) -> None:
        await scene.ask(FIND_COORDINATOR, {"key": "g", "key_type": 0}, 1)
        key = TopicPartition("__consumer_offsets", 0)
        await scene.until(lambda: scene.broker.partitions.get(key) is not None, "the topic is created")
        row = await scene.produce("__consumer_offsets", batch(b"v", key=b"k"))
        assert row["error_code"] == 17
        records = batch(b"v", key=b"k", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
        body = produce_body("__consumer_offsets", records) | {"transactional_id": "tx"}
        answer = await scene.ask(PRODUCE, body)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 17
        assert scene.broker.partitions.led_partition(key).log.log_end_offset == 0

    on_broker(tmp_path, scenario)


def test_invalid_acks_are_refused(tmp_path: Path) -> None:
    """Any value except -1, 0 and 1 is rejected before records are written."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        for acks, code in ((2, 21), (-2, 21), (1, 0), (-1, 0)):
            assert (await scene.produce("t", batch(b"v"), acks=acks))["error_code"] == code, acks
        await scene.connection.request(PRODUCE, 9, produce_body("t", batch(b"v"), acks=0), expects_response=False)
        row = await scene.produce("t", batch(b"v"))
        assert row["base_offset"] == 3, "two were acknowledged, one was sent without acks, and they are in order"

    on_broker(tmp_path, scenario)


def test_error_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    """The closed connection notifies the producer of the error; other connections stay open."""

    async def scenario(scene: Scene) -> None:
        other = await scene.connect()
        await other.request(PRODUCE, 9, produce_body("nobody", batch(b"v"), acks=0), expects_response=False)
        await scene.until(lambda: other.closed, "the connection is closed")
        assert not scene.connection.closed

    on_broker(tmp_path, scenario)


def test_zstd_requires_produce_7(tmp_path: Path) -> None:
    """Older clients could not read the records (KIP-110)."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        compressed = batch(b"v" * 100, codec=Codec.ZSTD)
        assert (await scene.produce("t", compressed, version=6))["error_code"] == 76
        assert (await scene.produce("t", compressed, version=7))["error_code"] == 0

    on_broker(tmp_path, scenario)


def test_record_without_key_is_refused_by_a_compacted_topic(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", cleanup_policy="compact")
        assert (await scene.produce("t", batch(b"v")))["error_code"] == 87
        assert (await scene.produce("t", batch(b"v", codec=Codec.GZIP)))["error_code"] == 87
        assert (await scene.produce("t", batch(b"v", key=b"k")))["error_code"] == 0

    on_broker(tmp_path, scenario)


def test_timestamps_far_from_now_are_refused(tmp_path: Path) -> None:
    """The topic's limits apply to past and future timestamps."""

    async def scenario(scene: Scene) -> None:
        bounds = {"message_timestamp_before_max_ms": "60000", "message_timestamp_after_max_ms": "60000"}
        await scene.make_topic("t", **bounds)
        now_ms = scene.broker.runtime.wall_clock_ms()
        for shift_ms, code in ((0, 0), (-120_000, 32), (120_000, 32), (-30_000, 0), (30_000, 0)):
            row = await scene.produce("t", batch(b"v", timestamp_ms=now_ms + shift_ms))
            assert row["error_code"] == code, shift_ms

    on_broker(tmp_path, scenario)


def test_log_append_time_replaces_timestamps(tmp_path: Path) -> None:
    """The response contains the broker's timestamp."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", message_timestamp_type="LogAppendTime")
        before_ms = scene.broker.runtime.wall_clock_ms()
        row = await scene.produce("t", batch(b"v", timestamp_ms=1))
        assert before_ms <= row["log_append_time_ms"] <= scene.broker.runtime.wall_clock_ms()
        records = bytes((await scene.fetch("t", 0))["records"])
        assert int.from_bytes(records[35:43], "big") == row["log_append_time_ms"]
        await scene.make_topic("u")
        assert (await scene.produce("u", batch(b"v")))["log_append_time_ms"] == -1

    on_broker(tmp_path, scenario)


def test_retries_of_an_idempotent_producer_are_written_once(tmp_path: Path) -> None:
    """Any of the last five batches may be sent again; a gap, an older epoch and an older batch are rejected."""

    def numbered(sequence: int, *, epoch: int = 0, count: int = 1) -> bytes:
        return batch(*[b"v"] * count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")

        async def send(sequence: int, **options: int) -> tuple[int, int]:
            row = await scene.produce("t", numbered(sequence, **options))
            return row["error_code"], row["base_offset"]

        assert [await send(i) for i in range(6)] == [(0, i) for i in range(6)]
        assert [await send(i) for i in range(1, 6)] == [(0, i) for i in range(1, 6)], "retries get the first answer"
        assert (await send(0))[0] in (45, 46), "too old to be detected as a retry"
        assert await send(8) == (45, -1), "a gap"
        assert await send(6) == (0, 6), "refused batches do not change the expected sequence"
        assert await send(5, epoch=1) == (45, -1), "a new epoch starts at 0"
        assert await send(0, epoch=1) == (0, 7)
        assert await send(7) == (47, -1), "the old epoch is over"
        assert (await scene.fetch("t", 0))["high_watermark"] == 8

    on_broker(tmp_path, scenario)


def test_sequence_numbers_wrap_around(tmp_path: Path) -> None:
    """After 2,147,483,647 comes 0, even within a batch."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")

        async def send(sequence: int, count: int) -> tuple[int, int]:
            records = batch(*[b"v"] * count, producer_id=9, producer_epoch=0, base_sequence=sequence)
            row = await scene.produce("t", records)
            return row["error_code"], row["base_offset"]

        assert await send(SEQUENCE_MAX - 1, 4) == (0, 0), "an unknown producer may start anywhere"
        assert await send(2, 1) == (0, 4)
        assert await send(SEQUENCE_MAX - 1, 4) == (0, 0)
        assert await send(2, 1) == (0, 4)

    on_broker(tmp_path, scenario)


def test_producer_state_survives_a_restart(tmp_path: Path) -> None:
    """A retry after a restart is still detected; producer IDs are never assigned twice."""
    ids: list[int] = []
    records: list[bytes] = []

    def now_ms(scene: Scene) -> int:
        return scene.broker.runtime.wall_clock_ms()  # the state of producers with old records expires, as in Kafka

    async def ask_ids(scene: Scene) -> None:
        body: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        ids.extend([(await scene.ask(INIT_PRODUCER_ID, body))["producer_id"] for _ in range(3)])

    async def before(scene: Scene) -> None:
        await ask_ids(scene)
        await scene.make_topic("t")
        records.append(batch(b"v", timestamp_ms=now_ms(scene), producer_id=ids[0], producer_epoch=0, base_sequence=0))
        assert (await scene.produce("t", records[0]))["base_offset"] == 0

    async def after(scene: Scene) -> None:
        await ask_ids(scene)
        row = await scene.produce("t", records[0])
        assert (row["error_code"], row["base_offset"]) == (0, 0)
        assert (await scene.fetch("t", 0))["high_watermark"] == 1

    on_broker(tmp_path, before)
    on_broker(tmp_path, after)
    assert len(set(ids)) == 6


def test_producer_ids_are_unique_across_blocks(tmp_path: Path) -> None:
    """A block from ZooKeeper has 1000 IDs; requests that wait for the next block each get a different ID."""

    async def scenario(scene: Scene) -> None:
        body: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        connections = [scene.connection, await scene.connect()]
        asked = [connection.request(INIT_PRODUCER_ID, 4, body) for connection in connections for _ in range(501)]
        ids = [(await answer)["producer_id"] for answer in asked]
        assert len(set(ids)) == 1002

    on_broker(tmp_path, scenario)


def test_producer_id_without_epoch_is_refused(tmp_path: Path) -> None:
    """A producer sends both its ID and its epoch, or neither (KIP-360)."""

    async def scenario(scene: Scene) -> None:
        body = {"transactional_id": None, "transaction_timeout_ms": 1, "producer_id": 5, "producer_epoch": -1}
        assert (await scene.ask(INIT_PRODUCER_ID, body))["error_code"] == 42

    on_broker(tmp_path, scenario)


def test_min_insync_replicas_is_capped_at_the_number_of_replicas(tmp_path: Path) -> None:
    """With one replica, min.insync.replicas=2 requires one, as in Kafka."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", min_insync_replicas="2")
        assert (await scene.produce("t", batch(b"v")))["error_code"] == 0
        assert (await scene.fetch("t", 0))["high_watermark"] == 1

    on_broker(tmp_path, scenario)


def test_flush_messages_1_syncs_before_the_response(tmp_path: Path) -> None:
    """The response is sent, and the record becomes visible, only after the sync."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", flush_messages="1")
        for i in range(3):
            row = await scene.produce("t", batch(b"v"))
            assert (row["error_code"], row["base_offset"]) == (0, i)
            (log,) = scene.broker.directories.logs.values()
            assert log.durability.recovery_point == i + 1
        assert (await scene.fetch("t", 0))["high_watermark"] == 3

    on_broker(tmp_path, scenario)


def test_client_that_disconnects_during_a_pending_fetch_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        other = await scene.connect()
        body = {
            "max_wait_ms": 60_000,
            "min_bytes": 1,
            "max_bytes": 100,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": "t",
                    "topic_id": NO_ID,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}],
                }
            ],
        }
        waiting = other.request(FETCH, 4, body)
        (partition,) = scene.broker.partitions
        await scene.until(lambda: bool(partition.watchers), "the fetch waits")
        await other.close()
        with pytest.raises(ConnectionLost):
            await waiting
        await scene.until(lambda: not partition.watchers, "the fetch is forgotten")

    on_broker(tmp_path, scenario)
