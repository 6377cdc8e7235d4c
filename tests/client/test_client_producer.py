"""A producer writes records to the log once and in order."""

from __future__ import annotations

from binascii import crc32
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import pytest
from producer_scene import Scene
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client import ConsistentPartitioner, RoundRobinPartitioner
from kreplica.client.producer import OutgoingRecord, ProducerOptions
from kreplica.client_core.errors import (
    BrokerRefused,
    BufferFull,
    DeliveryFailed,
    GaveUp,
    ProducerUnusable,
    RecordTooLarge,
)
from kreplica.client_core.partition_queue import EPOCH_MAX
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.storms.log_watch import LogWatch
from kreplica.wire.compression import Codec
from kreplica.wire.partitioning import partition_of_key


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One broker."""
    scene = Scene()
    yield scene
    scene.close()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_record_is_written(scene: Scene) -> None:
    """The record is written with all fields, and its Deferred fires with the offset."""
    producer = scene.producer()
    written = scene.run(producer.send("t", b"value", key=b"key", headers=(("h", b"1"),), partition=2))
    assert written.partition == TopicPartition("t", 2)
    assert written.offset == 0
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in scene.records(2)] == [
        (b"key", b"value", (("h", b"1"),), written.timestamp_ms)
    ]


@pytest.mark.parametrize("options", [{}, {"acks": 1}, {"idempotent": False}, {"codec": Codec.ZSTD}])
def test_many_records_in_order(scene: Scene, options: dict[str, Any]) -> None:
    """Batches of one partition are in order, and every Deferred fires with its offset."""
    producer = scene.producer(batch_size=500, **options)
    sent = [producer.send("t", value, partition=number % 4) for number, value in enumerate(numbers(1000))]
    scene.run(producer.flush())
    assert [scene.run(each).offset for each in sent] == [number // 4 for number in range(1000)]
    for partition in range(4):
        assert scene.values(partition) == numbers(1000)[partition::4]


def test_acks_0(scene: Scene) -> None:
    """A record's Deferred fires when the record is sent, with an unknown offset."""
    producer = scene.producer(acks=0)
    written = [scene.run(producer.send("t", value, partition=0)) for value in numbers(3)]
    assert [each.offset for each in written] == [-1, -1, -1]
    scene.brokers.run(0.1)
    assert scene.values(0) == numbers(3)


def test_nulls_and_timestamps(scene: Scene) -> None:
    """A record may have neither key nor value, and any timestamp."""
    producer = scene.producer()
    for timestamp_ms in (1_000, 5, 10**15):
        producer.send("t", None, partition=0, timestamp_ms=timestamp_ms)
    producer.send("t", b"v" * 20_000, partition=0, headers=(("none", None), ("ü", b"x" * 300)))
    scene.run(producer.flush())
    records = scene.records(0)
    assert [(each.key, each.value, each.timestamp_ms) for each in records[:3]] == [
        (None, None, 1_000),
        (None, None, 5),
        (None, None, 10**15),
    ]
    assert records[3].headers == (("none", None), ("ü", b"x" * 300))


def test_values_other_than_bytes_are_refused(scene: Scene) -> None:
    """A key or value that is not bytes is refused, without effect on other records."""
    producer = scene.producer()
    fine = producer.send("t", b"fine", partition=0)
    with pytest.raises(TypeError):
        producer.send("t", "text", partition=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.send("t", b"", key="text", partition=0)  # type: ignore[arg-type]
    scene.run(fine)
    assert scene.values(0) == [b"fine"]


# --- batches ---


def test_records_of_one_iteration_share_a_batch(scene: Scene) -> None:
    """Without linger, a batch contains the records sent in one reactor iteration or while a batch is in flight."""
    producer = scene.producer()
    first = [producer.send("t", value, partition=0) for value in numbers(5)]
    first[0].addCallback(lambda _: None)
    while not producer._sender._active:
        scene.brokers.simulation.step()
    for value in numbers(7):
        producer.send("t", value, partition=0)
        scene.brokers.simulation.step()
    scene.run(producer.flush())
    assert scene.records_per_batch(0) == [5, 7]


def test_linger(scene: Scene) -> None:
    """A batch waits for more records until its linger time ends; a full one does not wait."""
    producer = scene.producer(linger_s=1.0, batch_size=1000)
    scene.run(producer.send("t", b"warm", partition=1))
    early = producer.send("t", b"early", partition=0)
    scene.brokers.run(0.9)
    late = producer.send("t", b"late", partition=0)
    assert not early.called
    scene.brokers.run(0.2)
    assert (early.called, late.called) == (True, True)
    full = [producer.send("t", b"x" * 400, partition=0) for _ in range(3)]
    scene.brokers.run(0.2)
    assert [each.called for each in full] == [True, True, False]
    scene.run(producer.flush())
    assert scene.records_per_batch(0) == [2, 2, 1]


def test_oversized_batch_is_split(scene: Scene) -> None:
    """The batch is split repeatedly, and the records stay in order."""
    scene.run(scene.brokers.client().change_settings("t", {"max.message.bytes": "400"}))
    producer = scene.producer()
    sent = [producer.send("t", value * 10, partition=0) for value in numbers(200)]
    scene.run(producer.flush())
    assert [scene.run(each).offset for each in sent] == list(range(200))
    assert scene.values(0) == [value * 10 for value in numbers(200)]


def test_oversized_record(scene: Scene) -> None:
    """Only the oversized record fails, whether the producer or the broker refuses it."""
    scene.run(scene.brokers.client().change_settings("t", {"max.message.bytes": "400"}))
    producer = scene.producer(request_size_max=5000)
    before, large, after = (producer.send("t", value, partition=0) for value in (b"a", b"b" * 1000, b"c"))
    assert isinstance(scene.error(large), RecordTooLarge)
    scene.run(before)
    scene.run(after)
    scene.run(producer.send("t", b"d", partition=0))
    assert scene.values(0) == [b"a", b"c", b"d"]
    assert isinstance(scene.error(producer.send("t", b"x" * 5000, partition=0)), RecordTooLarge)


# --- partitions ---


def test_keys(scene: Scene) -> None:
    """Records with a key go to the partition that other Kafka clients choose for it."""
    producer = scene.producer()
    for number in range(20):
        key = b"key-%d" % number
        assert scene.run(producer.send("t", b"", key=key)).partition.partition == partition_of_key(key, 4)


def test_records_without_a_key_fill_one_partition_at_a_time(scene: Scene) -> None:
    """All partitions get records over time."""
    producer = scene.producer(batch_size=500, linger_s=0.5)
    sent = [producer.send("t", b"x" * 80) for _ in range(100)]
    scene.run(producer.flush())
    partitions = [scene.run(each).partition.partition for each in sent]
    changes = sum(before != after for before, after in pairwise(partitions))
    assert set(partitions) == {0, 1, 2, 3}
    assert 100 / 6 <= changes <= 100 / 4


def test_other_partitioners(scene: Scene) -> None:
    """Other partitioners choose partitions in turn, or by librdkafka's hash."""
    producer = scene.producer(partitioner=RoundRobinPartitioner)
    turns = [scene.run(producer.send("t", b"", key=b"k")).partition.partition for _ in range(8)]
    assert turns == [(turns[0] + number) % 4 for number in range(8)]
    producer = scene.producer(partitioner=ConsistentPartitioner)
    for key in (b"a", b"b", b"some longer key"):
        assert scene.run(producer.send("t", b"", key=key)).partition.partition == crc32(key) % 4
    scene.run(producer.send("t", b"", key=b""))


def test_topic_created_later(scene: Scene) -> None:
    """Records for a missing topic wait in order for its creation, without blocking others."""
    producer = scene.producer()
    sent = [producer.send("new", value, partition=0) for value in numbers(5)]
    flushed = Deferred.fromCoroutine(producer.flush())
    scene.run(producer.send("t", b"other", partition=0))
    assert not flushed.called
    scene.create("new")
    scene.run(flushed)
    assert [scene.run(each).offset for each in sent] == [0, 1, 2, 3, 4]
    assert scene.values(0, "new") == numbers(5)


def test_missing_topic_or_partition(scene: Scene) -> None:
    """Records fail after a timeout and free their memory, unless the partition is created in time."""
    producer = scene.producer(topic_timeout_s=2.0)
    for topic, partition in (("nope", None), ("nope", 1), ("t", 17)):
        error = scene.error(producer.send(topic, b"x", partition=partition))
        assert isinstance(error, GaveUp)
        assert isinstance(error.__cause__, BrokerRefused)
        assert error.__cause__.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer._accumulator._used_size == 0
    more = producer.send("t", b"more", partition=5)
    scene.run(scene.brokers.client().create_partitions("t", 6))
    assert scene.run(more).partition == TopicPartition("t", 5)


def test_partition_used_before_it_exists(scene: Scene) -> None:
    """Records sent to it by key do not overtake records sent earlier by partition number."""
    producer = scene.producer()
    scene.run(producer.send("t", b"", partition=0))
    numbered = [producer.send("t", value, partition=4) for value in numbers(3)]
    scene.run(scene.brokers.client().create_partitions("t", 5))
    scene.brokers.wait_in_sync("t", range(5))
    scene.run(scene.cluster.refresh(("t",)))
    producer._accumulator._topics["t"].view = scene.cluster.view.topics["t"]
    key = next(key for key in numbers(1000) if partition_of_key(key, 5) == 4)
    keyed = producer.send("t", b"keyed", key=key)
    scene.run(producer.flush())
    assert [scene.run(each).offset for each in (*numbered, keyed)] == [0, 1, 2, 3]


def test_exhausted_epochs(scene: Scene) -> None:
    """The producer requests a new producer ID and continues."""
    scene.run(scene.brokers.client().change_settings("t", {"max.message.bytes": "400"}))
    producer = scene.producer()
    scene.run(producer.send("t", b"a", partition=0))
    (queue,) = producer._accumulator.queues()
    before = queue.identity
    assert before is not None
    queue.identity = before._replace(epoch=EPOCH_MAX)
    scene.error(producer.send("t", b"x" * 1000, partition=0))
    scene.run(producer.send("t", b"b", partition=0))
    assert queue.identity.producer_id != before.producer_id
    assert scene.values(0) == [b"a", b"b"]


# --- memory ---


def test_memory_is_bounded(scene: Scene) -> None:
    """A producer with a full buffer refuses records until memory is free; accepted records are not lost."""
    producer = scene.producer(memory_size_max=10_000, batch_size=1000, linger_s=100.0)
    sent = [producer.send("t", b"x" * 100, partition=0)]
    while not sent[-1].called:
        sent.append(producer.send("t", b"x" * 100, partition=0))
    assert isinstance(scene.error(sent.pop()), BufferFull)
    assert 9_000 < producer._accumulator._used_size <= 10_000
    scene.run(producer.room())
    sent.append(producer.send("t", b"last", partition=0))
    scene.run(producer.flush())
    assert [scene.run(each).offset for each in sent] == list(range(len(sent)))
    assert producer._accumulator._used_size == 0


def test_batches_are_full_when_memory_is_scarce(scene: Scene) -> None:
    """Senders that wait for memory do not cause small batches."""
    producer = scene.producer(memory_size_max=20_000, batch_size=2_000, linger_s=1.0)

    async def write() -> None:
        for number in range(4000):
            await producer.room()
            producer.send("t", b"x" * 100, partition=number % 2)
        await producer.flush()

    scene.run(write())
    for partition in range(2):
        counts = scene.records_per_batch(partition)
        assert sum(counts) == 2000
        assert len(counts) <= 2000 / 17 + 2


def test_send_all_with_little_memory(scene: Scene) -> None:
    producer = scene.producer(memory_size_max=3_000, batch_size=500)
    assert scene.run(producer.send_all("t", [OutgoingRecord(value, partition=0) for value in numbers(1000)])) == 1000
    assert scene.values(0) == numbers(1000)

    async def streamed_values() -> AsyncIterator[bytes]:
        for value in numbers(10):
            yield value

    assert scene.run(producer.send_all("t", streamed_values())) == 10


def test_send_all_reports_failures(scene: Scene) -> None:
    """The error contains the number of failed records and the first error."""
    scene.run(scene.brokers.client().change_settings("t", {"max.message.bytes": "400"}))
    producer = scene.producer()
    records = [OutgoingRecord(b"x" * (1000 if number % 4 == 0 else 1), partition=0) for number in range(10)]
    error = scene.error(producer.send_all("t", records))
    assert isinstance(error, DeliveryFailed)
    assert error.count == 3
    assert isinstance(error.first, RecordTooLarge)
    assert len(scene.values(0)) == 7


def test_waiting_for_memory_may_be_cancelled(scene: Scene) -> None:
    """Cancelling one waiter does not affect the others."""
    producer = scene.producer(memory_size_max=2_000, linger_s=100.0)
    producer.send("t", b"x" * 1900, partition=0)
    waits = [Deferred.fromCoroutine(producer.room()) for _ in range(3)]
    failed: list[Any] = []
    waits[1].addErrback(failed.append)
    waits[1].cancel()
    assert failed[0].check(CancelledError)
    scene.run(waits[0])
    scene.run(waits[2])


# --- cancelling and closing ---


def test_cancelled_record_is_written(scene: Scene) -> None:
    """Cancelling a record's Deferred cancels only the notification."""
    producer = scene.producer()
    sent = producer.send("t", b"x", partition=0)
    sent.cancel()
    assert isinstance(scene.error(sent), CancelledError)
    scene.run(producer.flush())
    assert scene.values(0) == [b"x"]


def test_close_flushes(scene: Scene) -> None:
    """Closing flushes accepted records, and later ones are refused."""
    producer = scene.producer(linger_s=100.0)
    sent = producer.send("t", b"x", partition=0)
    scene.run(producer.close())
    assert scene.run(sent).offset == 0
    assert isinstance(scene.error(producer.send("t", b"y")), ProducerUnusable)
    scene.run(producer.close())


def test_exit_by_an_exception_does_not_flush(scene: Scene) -> None:
    """If an exception leaves the context manager, pending records fail at once."""
    producer = scene.producer(linger_s=100.0, batch_size=200)
    sent: list[Deferred[Any]] = []

    async def fail() -> None:
        async with producer:
            sent.append(producer.send("t", b"x" * 150, partition=0))
            sent.append(producer.send("t", b"closes the batch before it" * 3, partition=0))
            sent.append(producer.send("unknown", b"x", partition=0))
            raise RuntimeError

    assert isinstance(scene.error(fail()), RuntimeError)
    assert [type(scene.error(each)) for each in sent] == [ProducerUnusable] * 3


def test_close_while_connecting(scene: Scene) -> None:
    """Closing ends the connection attempt, and nothing is logged."""
    producer = scene.producer(acks=1)
    scene.run(scene.cluster.refresh(("t",)))
    scene.brokers.simulation.network.isolate("application")
    sent = producer.send("t", b"x", partition=0)
    scene.brokers.run(0.1)
    with LogWatch() as watch:
        scene.run(producer.close(flush=False))
    assert isinstance(scene.error(sent), ProducerUnusable)
    watch.check()


def test_dropped_coroutine_ends_silently(scene: Scene) -> None:
    """A coroutine that is closed while it waits for a record raises and logs nothing."""

    async def work() -> None:
        async with scene.producer(linger_s=5.0) as producer:
            await producer.send("t", b"x")

    running = work()
    running.send(None)
    running.close()


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"acks": 1, "idempotent": True},
        {"acks": 0, "transactional_id": "x"},
        {"idempotent": False, "transactional_id": "x"},
        {"batch_size": 0},
        {"linger_s": -1.0},
        {"delivery_timeout_s": 0.0},
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"acks|idempotent|greater than 0|must not be negative"):
        ProducerOptions(**options)
