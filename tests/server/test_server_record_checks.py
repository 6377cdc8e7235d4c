"""Compressed batches are decompressed before they are stored; large ones outside the event loop, but in order."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import lz4.frame
import pytest
from server_scene import parse_answer
from test_server_produce_runs import Broker, produce
from twisted.internet.threads import deferToThread

from kreplica.errors import ErrorCode
from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.batch_validation import validate
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch, encode_record, seal
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, parse_header
from kreplica.wire.compression import XERIAL_HEADER, Codec, compress
from kreplica.wire.messages import PRODUCE
from kreplica.wire.records import Record, iter_records
from tests.support.broker_scene import NOW_MS, Scene, on_broker, produce_body

INVALID_RECORD = 87
INVALID_TIMESTAMP = 32
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def records(count: int, size: int = 100, key: bytes | None = b"key") -> list[Record]:
    values = random.Random(7)
    return [Record(NEXT_OFFSET, NOW_MS + i, key, values.randbytes(size // 2) * 2, ()) for i in range(count)]


def make_batch(codec: int, section: bytes, count: int, **changes: Any) -> bytes:
    """Return a batch with a valid checksum around any compressed section."""
    header = parse_header(build_batch([Record(NEXT_OFFSET, NOW_MS, None, b"v", ())]))
    header = header._replace(attributes=codec, record_count=count, last_offset_delta=count - 1)
    return seal(header._replace(**changes), section)


def section_of(*deltas: int, timestamps: tuple[int, ...] = ()) -> bytes:
    times = timestamps or (0,) * len(deltas)
    return b"".join(encode_record(t, d, b"k", b"value") for t, d in zip(times, deltas, strict=True))


def bad_batches() -> Iterator[tuple[str, bytes]]:
    """Return invalid batches by name."""
    three = section_of(0, 1, 2)
    yield "18 bytes that are not gzip", make_batch(Codec.GZIP, b"\x02" * 18, 1)
    yield "snappy that declares 2 GiB", make_batch(Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"\x00a", 1)
    yield "snappy that declares 60 MiB in 10 bytes", make_batch(Codec.SNAPPY, b"\x80\x80\x80\x1e" + b"\x00a" * 3, 1)
    yield "a xerial block without its end", make_batch(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", 1000) + b"a", 1)
    yield "an lz4 header alone", make_batch(Codec.LZ4, b"\x04\x22\x4d\x18", 1)
    linked = lz4.frame.compress(b"x" * 200_000, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    yield "lz4 of dependent blocks", make_batch(Codec.LZ4, linked, 1)
    yield "zstd that is cut short", make_batch(Codec.ZSTD, bytes(cramjam.zstd.compress(three))[:-4], 3)
    for codec in COMPRESSING:
        yield f"{codec.name}: fewer records than counted", make_batch(codec, compress(codec, three), 4)
        yield f"{codec.name}: more records than counted", make_batch(codec, compress(codec, three), 2)
        yield f"{codec.name}: an offset twice", make_batch(codec, compress(codec, section_of(0, 1, 1)), 3)
        yield f"{codec.name}: offsets from 1", make_batch(codec, compress(codec, section_of(1, 2, 3)), 3)
        yield f"{codec.name}: a record cut short", make_batch(codec, compress(codec, three[:-3]), 3)
        yield f"{codec.name}: a length that is too long", make_batch(codec, compress(codec, b"\x7e" + three[1:]), 3)
    yield "NONE in disguise", make_batch(Codec.ZSTD, three, 3)


@pytest.mark.parametrize("name", [name for name, _ in bad_batches()])
def test_bad_batch_is_refused_and_changes_nothing(name: str) -> None:
    """Compressed garbage with valid checksums gets INVALID_RECORD, as from Kafka's brokers."""
    validated = validate(dict(bad_batches())[name], LogConfig(), NOW_MS, 64 * 2**20)
    assert validated.rejection is not None
    assert validated.rejection.code == INVALID_RECORD


def test_bad_batches_never_reach_a_log(tmp_path: Path) -> None:
    """A broker rejects every invalid batch, and the valid batches around it get consecutive offsets."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        for codec in COMPRESSING:
            for data in (bad for name, bad in bad_batches() if name.startswith((codec.name, "18 ", "snappy "))):
                row = await scene.produce("t", data)
                assert (row["error_code"], row["base_offset"]) == (INVALID_RECORD, -1)
                assert row["error_message"]
            row = await scene.produce("t", build_batch(records(3), codec=codec))
            assert (row["error_code"], row["base_offset"]) == (0, 3 * COMPRESSING.index(codec))

    on_broker(tmp_path, scenario)


def test_decompression_bomb_is_refused(tmp_path: Path) -> None:
    """With every codec, a record that is larger than the limit when decompressed is rejected."""
    section = encode_record(0, 0, None, b"\x00" * (3 * 2**20))

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        for codec in COMPRESSING:
            row = await scene.produce("t", make_batch(codec, compress(codec, section), 1))
            assert row["error_code"] == INVALID_RECORD, codec
            assert "kreplica.decompressed.batch.max.bytes" in row["error_message"]

    on_broker(tmp_path, scenario, "kreplica.decompressed.batch.max.bytes=2097152")


def test_max_timestamp_is_computed_from_the_records() -> None:
    """Otherwise, a future timestamp in the batch header could prevent retention from deleting the records."""
    section = section_of(0, 1, 2, timestamps=(0, 70, 30))
    data = make_batch(Codec.GZIP, compress(Codec.GZIP, section), 3, max_timestamp=NOW_MS + 10**12)
    validated = validate(data, LogConfig(), NOW_MS, 2**20)
    assert validated.accepted().max_timestamp == NOW_MS + 70
    assert parse_header(validated) == validated.accepted()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_large_batches_are_validated_outside_of_the_event_loop_in_order(tmp_path: Path, codec: Codec) -> None:
    """Pipelined large and small batches of one idempotent producer are stored in order."""
    runs: list[int] = []

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        offload = scene.broker.runtime.offload
        run = offload.run
        setattr(offload, "run", lambda *arguments: (runs.append(1), run(*arguments))[1])  # noqa: B010
        sequence, answers = 0, []
        for count in (1, 900, 2, 3, 1500, 4, 5, 6, 1200, 7):
            data = build_batch(
                records(count), codec=codec, producer_id=9, producer_epoch=0, base_sequence=sequence
            )
            answers.append((sequence, scene.connection.request(PRODUCE, 9, produce_body("t", data), timeout_s=20)))
            sequence += count
        for offset, answer in answers:
            row = (await answer)["responses"][0]["partition_responses"][0]
            assert (row["error_code"], row["base_offset"]) == (0, offset)
        assert runs, "the large batches were validated in threads"

    on_broker(tmp_path, scenario)


def test_batches_are_recompressed_with_the_codec_of_the_topic(tmp_path: Path) -> None:
    """Large batches are recompressed outside the event loop, with all records unchanged."""
    sent = records(2000)

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", compression_type="zstd")
        row = await scene.produce("t", build_batch(sent, codec=Codec.GZIP))
        assert row["error_code"] == 0, row
        stored = bytes((await scene.fetch("t", 0))["records"])
        assert parse_header(stored).codec == Codec.ZSTD
        assert [record.value for record in iter_records(stored)] == [record.value for record in sent]

    on_broker(tmp_path, scenario)


def test_closed_connection_leaves_nothing_in_the_validation_queue(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        data = build_batch(records(5000), codec=Codec.GZIP)
        for _ in range(5):
            leaving = await scene.connect()
            leaving.request(PRODUCE, 9, produce_body("t", data), timeout_s=20).addErrback(lambda _: None)
            await leaving.close()
        row = await scene.produce("t", data)
        assert row["error_code"] == 0

    on_broker(tmp_path, scenario)


def large() -> bytes:
    return build_batch(records(1500), codec=Codec.GZIP)


def test_concurrent_validations_are_bounded() -> None:
    """Two of ten connections use threads, and the others wait; those that close release their memory."""
    broker = Broker()
    validation = broker.resources.dispatch.table[PRODUCE.key].handle._validation
    connections = [broker.connect() for _ in range(10)]
    frame = memoryview(produce(1, large()))[4:]
    for connection in connections:
        broker.resources.dispatch.frame_received(connection, frame)
    assert validation.running == 2
    assert validation.waiting_bytes == 10 * len(large())
    for connection in connections[5:]:
        connection.drop("the test")
    broker.cluster.run_until(lambda: not validation.waiting_bytes)
    assert validation.running == 0
    assert [len(broker.answers(connection)) for connection in connections] == [1] * 5 + [0] * 5


def test_validations_above_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request above the limit on waiting bytes gets a retriable error at once, and its connection stays open."""
    monkeypatch.setattr("kreplica.server.produce.record_checks.WAITING_BYTES_MAX", 2 * len(large()))
    broker = Broker()
    connections = [broker.connect() for _ in range(3)]
    frame = memoryview(produce(1, large()))[4:]
    for connection in connections:
        broker.resources.dispatch.frame_received(connection, frame)
    assert [connection.held for connection in connections] == [True, True, False]
    _, body = parse_answer(memoryview(broker.answers(connections[2])[0]), PRODUCE.key, 9)
    code = ErrorCode(body["responses"][0]["partition_responses"][0]["error_code"])
    assert code is ErrorCode.NOT_ENOUGH_REPLICAS
    broker.cluster.run_until(lambda: not any(connection.held for connection in connections))
    assert broker.partition().log.log_end_offset == 2 * 1500


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_without_keys_are_reported_one_by_one(tmp_path: Path, codec: Codec) -> None:
    """A compacted topic rejects the batch and returns the indexes of the invalid records (KIP-467)."""
    keys = [b"a", None, b"b", None]
    data = build_batch([Record(NEXT_OFFSET, NOW_MS, key, b"v", ()) for key in keys], codec=codec)

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", cleanup_policy="compact")
        row = await scene.produce("t", data)
        assert row["error_code"] == INVALID_RECORD
        assert [error["batch_index"] for error in row["record_errors"]] == [1, 3]
        assert all("key" in error["batch_index_error_message"] for error in row["record_errors"])

    on_broker(tmp_path, scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_timestamps_out_of_range_are_reported_one_by_one(tmp_path: Path, codec: Codec) -> None:
    """Records too far in the past or future are reported; a record without a timestamp is valid."""

    async def scenario(scene: Scene) -> None:
        limits = {"message_timestamp_before_max_ms": "1000000", "message_timestamp_after_max_ms": "1000000"}
        await scene.make_topic("t", **limits)
        now_ms = scene.broker.runtime.wall_clock_ms()
        times = [now_ms, 1000, now_ms, now_ms + 10**9]
        row = await scene.produce(
            "t", build_batch([Record(NEXT_OFFSET, time, b"k", b"v", ()) for time in times], codec=codec)
        )
        assert row["error_code"] == INVALID_TIMESTAMP
        assert [error["batch_index"] for error in row["record_errors"]] == [1, 3]

    on_broker(tmp_path, scenario)


def produce_mixed(port: int) -> tuple[list[tuple[bytes | None, str | None]], list[str]]:
    """Produce batches with two records without a key; return the errors that librdkafka and kafka-python report."""
    from confluent_kafka import Producer
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    keys = (b"a", None, b"b", None)
    outcomes: list[tuple[bytes | None, str | None]] = []

    def report(error: Any, message: Any) -> None:
        outcomes.append((message.key(), error and error.name()))

    confluent = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 500, "log_level": 0})
    for key in keys:
        confluent.produce("t", b"v", key=key, on_delivery=report)
    confluent.flush(20)
    del confluent
    python = KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", linger_ms=200, retries=0)
    futures = [python.send("t", b"v", key=key) for key in keys]
    python.flush(20)
    errors = []
    for future in futures:
        try:
            future.get(20)
        except KafkaError as error:
            errors.append(type(error).__name__)
    python.close()
    return outcomes, errors


def test_clients_report_the_invalid_records(tmp_path: Path) -> None:
    """Only the records without a key are reported as invalid; the others fail because of their batch."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", cleanup_policy="compact")
        outcomes, errors = await deferToThread(produce_mixed, scene.broker.port)
        other = "_INVALID_DIFFERENT_RECORD"
        assert outcomes == [(b"a", other), (None, "INVALID_RECORD"), (b"b", other), (None, "INVALID_RECORD")]
        assert errors == ["KafkaError", "InvalidRecordError", "KafkaError", "InvalidRecordError"]

    on_broker(tmp_path, scenario)


def test_batches_compressed_by_other_libraries_are_accepted(tmp_path: Path) -> None:
    import snappy
    import zstandard

    section = b"".join(encode_record(i, i, b"k", b"v" * 50) for i in range(500))
    streamed = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = [
        (Codec.GZIP, gzip.compress(section)),
        (Codec.GZIP, zlib.compress(section, 9, wbits=31)),
        (Codec.SNAPPY, snappy.compress(section)),
        (Codec.LZ4, lz4.frame.compress(section)),
        (Codec.LZ4, lz4.frame.compress(section, store_size=False, content_checksum=True, block_linked=False)),
        (Codec.LZ4, lz4.frame.compress(section, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)),
        (Codec.ZSTD, zstandard.ZstdCompressor(level=19).compress(section)),
        (Codec.ZSTD, streamed.compress(section) + streamed.flush()),
    ]

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        for number, (codec, data) in enumerate(packed):
            row = await scene.produce("t", make_batch(codec, data, 500, max_timestamp=NOW_MS + 499))
            assert (row["error_code"], row["base_offset"]) == (0, 500 * number), (codec, number)

    on_broker(tmp_path, scenario)


def test_valid_header_fields_are_accepted() -> None:
    """The helper of these tests builds batches with no fault except the intended one."""
    good = make_batch(Codec.GZIP, compress(Codec.GZIP, section_of(0, 1, 2)), 3)
    assert validate(good, LogConfig(), NOW_MS, 2**20).rejection is None
    assert len(good) > HEADER_SIZE
    assert isinstance(parse_header(good), BatchHeader)
