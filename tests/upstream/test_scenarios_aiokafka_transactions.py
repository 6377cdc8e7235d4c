"""aiokafka's transactions: what its own tests of transactional producers and consumers expect of a broker."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, OutOfOrderSequenceNumber, ProducerFenced
from aiokafka_scene import Scene, nothing_comes, read, scenario


@scenario
async def test_what_was_committed_is_read(scene: Scene, topic: str) -> None:
    """A record of a transaction comes with the offset and the time that its producer was told."""
    producer = await scene.producer(transactional_id=topic)
    async with producer.transaction():
        sent = await producer.send_and_wait(topic, b"in a transaction")
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    message = await asyncio.wait_for(consumer.getone(), 20)
    assert (message.value, message.offset, message.timestamp) == (b"in a transaction", sent.offset, sent.timestamp)


@scenario
async def test_a_transaction_may_be_empty(scene: Scene, topic: str) -> None:
    """Nothing was written, and both ends are as good."""
    producer = await scene.producer(transactional_id=topic)
    await producer.begin_transaction()
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.abort_transaction()


@scenario
async def test_the_second_producer_of_an_id_ends_the_first(scene: Scene, topic: str) -> None:
    """The first is told that it is fenced, and what it wrote is in no transaction."""
    first = await scene.producer(transactional_id=topic)
    second = await scene.producer(transactional_id=topic)
    async with second.transaction():
        await second.send_and_wait(topic, b"second", partition=0)
    with pytest.raises(ProducerFenced):
        async with first.transaction():
            await first.send_and_wait(topic, b"first", partition=0)
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    assert await read(consumer, 1) == [b"second"]
    await nothing_comes(consumer)


@scenario
async def test_an_id_keeps_its_producer_id(scene: Scene, topic: str) -> None:
    """Whoever starts again under the same transactional id has the same producer id, and the next epoch."""
    first = await scene.producer(transactional_id=topic)
    second = await scene.producer(transactional_id=topic)
    assert second._txn_manager.producer_id == first._txn_manager.producer_id
    assert second._txn_manager.producer_epoch == first._txn_manager.producer_epoch + 1


@scenario
async def test_a_gap_in_the_sequence_ends_the_transaction_alone(scene: Scene, topic: str) -> None:
    """The transaction is aborted, and the producer begins another one."""
    producer = await scene.producer(transactional_id=topic)
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"one", partition=0)
    # As if a record had been lost on its way.
    producer._txn_manager.increment_sequence_number(TopicPartition(topic, 0), 1)
    with pytest.raises(OutOfOrderSequenceNumber):
        await producer.send_and_wait(topic, b"three", partition=0)
    await producer.abort_transaction()
    again = await scene.producer(transactional_id=topic)
    async with again.transaction():
        await again.send_and_wait(topic, b"anew", partition=0)
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    assert await read(consumer, 1) == [b"anew"]


async def transform(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, topic: str, *, fail: bool) -> None:
    """Read all there is and write it to another topic, each batch in a transaction with the offsets read."""
    while batch := await consumer.getmany(timeout_ms=500, max_records=20):
        async with producer.transaction():
            for partition, messages in batch.items():
                for message in messages:
                    await producer.send(f"{topic}-out", b"out " + message.value, partition=partition.partition)
            offsets = {partition: messages[-1].offset + 1 for partition, messages in batch.items()}
            await producer.send_offsets_to_transaction(offsets, topic)
            if fail:
                raise ZeroDivisionError


@scenario
async def test_offsets_are_committed_with_the_transaction(scene: Scene, topic: str) -> None:
    """They are those of the group when it commits, and not when it aborts; what was read is then read again."""
    for partition in (0, 1):
        await scene.send(topic, partition, range(40))
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer = await scene.consumer(topic, group_id=topic)
    producer = await scene.producer(transactional_id=topic)
    await consumer.commit(dict.fromkeys(partitions, 0))
    with pytest.raises(ZeroDivisionError):
        await transform(consumer, producer, topic, fail=True)
    assert [await consumer.committed(partition) for partition in partitions] == [0, 0]
    # Not by seek_to_committed, which takes a committed 0 for none.
    for partition in partitions:
        consumer.seek(partition, 0)
    await transform(consumer, producer, topic, fail=False)
    assert [await consumer.committed(partition) for partition in partitions] == [40, 40]
    written = await scene.consumer(f"{topic}-out", isolation_level="read_committed")
    assert sorted(await read(written, 80)) == sorted(b"out %d" % number for number in [*range(40)] * 2)
    await nothing_comes(written)


@scenario
async def test_misuse_is_refused_by_the_client(scene: Scene, topic: str) -> None:
    """Offsets outside of a transaction, and transactions of a producer without a transactional id."""
    producer = await scene.producer(transactional_id=topic)
    with pytest.raises(IllegalOperation):
        await producer.send_offsets_to_transaction({}, topic)
    plain = await scene.producer()
    with pytest.raises(IllegalOperation):
        await plain.begin_transaction()


@scenario
async def test_a_commit_waits_for_all_that_was_sent(scene: Scene, topic: str) -> None:
    """Also for a second batch of a partition, which is sent after the first one is answered."""
    producer = await scene.producer(transactional_id=topic)
    await producer.begin_transaction()
    sent = [await producer.send(topic, b"%d" % number) for number in range(10)]
    for value in (b"a", b"b"):
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=value)
        batch.close()
        sent.append(await producer.send_batch(batch, topic, partition=0))
    await producer.commit_transaction()
    assert all(future.done() for future in sent)


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_an_open_transaction_holds_back_what_follows(cluster, topic, commits):
    """Records behind it, of other producers too, are read when it has ended; its own, if it committed."""

    async def play(scene: Scene, topic: str) -> None:
        producer, other = await scene.producer(transactional_id=topic), await scene.producer()
        consumer = await scene.consumer(topic, isolation_level="read_committed")
        partition = TopicPartition(topic, 0)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"in a transaction", partition=0)
        await other.send_and_wait(topic, b"in none", partition=0)
        reading = asyncio.ensure_future(read(consumer, 2 if commits else 1))
        await asyncio.sleep(1)
        assert not reading.done()
        assert (consumer.last_stable_offset(partition), consumer.highwater(partition)) == (0, 2)
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        assert await reading == ([b"in a transaction", b"in none"] if commits else [b"in none"])
        await nothing_comes(consumer)
        # The marker has an offset of its own.
        assert (consumer.last_stable_offset(partition), consumer.highwater(partition)) == (3, 3)

    scenario(play)(cluster, topic)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_consumer_passes_a_marker(cluster, topic, isolation_level):
    """A marker is no record: whoever stands before one goes on behind it, with the smallest of fetches too."""

    async def play(scene: Scene, topic: str) -> None:
        producer = await scene.producer(transactional_id=topic)
        async with producer.transaction():
            first = await producer.send_and_wait(topic, b"one", partition=0)
        consumer = await scene.consumer(topic, isolation_level=isolation_level, fetch_max_bytes=10)
        consumer.seek(first.topic_partition, first.offset + 1)
        await nothing_comes(consumer)
        assert await consumer.position(first.topic_partition) == first.offset + 2
        async with producer.transaction():
            await producer.send_and_wait(topic, b"two", partition=0)
        assert await read(consumer, 1) == [b"two"]

    scenario(play)(cluster, topic)


@scenario
async def test_of_many_transactions_the_committed_ones_are_read(scene: Scene, topic: str) -> None:
    """In their order, and no record of the others."""
    producer = await scene.producer(transactional_id=topic)
    for number in range(10):
        await producer.begin_transaction()
        await producer.send(topic, b"%d" % number, partition=0)
        await (producer.abort_transaction() if number % 3 else producer.commit_transaction())
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    assert await read(consumer, 4) == [b"0", b"3", b"6", b"9"]
    await nothing_comes(consumer)
