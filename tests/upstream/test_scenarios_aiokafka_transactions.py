"""Transactions of aiokafka: scenarios equivalent to its own tests of transactional producers and consumers."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, OutOfOrderSequenceNumber, ProducerFenced
from aiokafka_scene import Scene, check_no_record_arrives, read, scenario


@scenario
async def test_committed_records_have_offset_and_timestamp(scene: Scene, topic: str) -> None:
    """A record of a transaction has the offset and timestamp that its producer received."""
    producer = await scene.producer(transactional_id=topic)
    async with producer.transaction():
        sent = await producer.send_and_wait(topic, b"in a transaction")
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    message = await asyncio.wait_for(consumer.getone(), 20)
    assert (message.value, message.offset, message.timestamp) == (b"in a transaction", sent.offset, sent.timestamp)


@scenario
async def test_a_transaction_may_be_empty(scene: Scene, topic: str) -> None:
    """A transaction without records can be committed and aborted."""
    producer = await scene.producer(transactional_id=topic)
    await producer.begin_transaction()
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.abort_transaction()


@scenario
async def test_a_second_producer_fences_the_first(scene: Scene, topic: str) -> None:
    """The first producer receives a fencing error, and its records are not committed."""
    first = await scene.producer(transactional_id=topic)
    second = await scene.producer(transactional_id=topic)
    async with second.transaction():
        await second.send_and_wait(topic, b"second", partition=0)
    with pytest.raises(ProducerFenced):
        async with first.transaction():
            await first.send_and_wait(topic, b"first", partition=0)
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    assert await read(consumer, 1) == [b"second"]
    await check_no_record_arrives(consumer)


@scenario
async def test_a_transactional_id_keeps_its_producer_id(scene: Scene, topic: str) -> None:
    """A restart with the same transactional ID gets the same producer ID and the next epoch."""
    first = await scene.producer(transactional_id=topic)
    second = await scene.producer(transactional_id=topic)
    assert second._txn_manager.producer_id == first._txn_manager.producer_id
    assert second._txn_manager.producer_epoch == first._txn_manager.producer_epoch + 1


@scenario
async def test_a_sequence_gap_ends_only_the_transaction(scene: Scene, topic: str) -> None:
    """The transaction is aborted, and the producer starts another one."""
    producer = await scene.producer(transactional_id=topic)
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"one", partition=0)
    # Simulates a lost record.
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
    """Copy all records to another topic, each batch in a transaction with the offsets read."""
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
    """A commit commits the group's offsets; after an abort, they are unchanged, and the records are read again."""
    for partition in (0, 1):
        await scene.send(topic, partition, range(40))
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer = await scene.consumer(topic, group_id=topic)
    producer = await scene.producer(transactional_id=topic)
    await consumer.commit(dict.fromkeys(partitions, 0))
    with pytest.raises(ZeroDivisionError):
        await transform(consumer, producer, topic, fail=True)
    assert [await consumer.committed(partition) for partition in partitions] == [0, 0]
    # Not by seek_to_committed, which ignores a committed offset of 0.
    for partition in partitions:
        consumer.seek(partition, 0)
    await transform(consumer, producer, topic, fail=False)
    assert [await consumer.committed(partition) for partition in partitions] == [40, 40]
    written = await scene.consumer(f"{topic}-out", isolation_level="read_committed")
    assert sorted(await read(written, 80)) == sorted(b"out %d" % number for number in [*range(40)] * 2)
    await check_no_record_arrives(written)


@scenario
async def test_misuse_is_rejected_by_the_client(scene: Scene, topic: str) -> None:
    """The client rejects offsets outside a transaction, and transactions without a transactional ID."""
    producer = await scene.producer(transactional_id=topic)
    with pytest.raises(IllegalOperation):
        await producer.send_offsets_to_transaction({}, topic)
    plain = await scene.producer()
    with pytest.raises(IllegalOperation):
        await plain.begin_transaction()


@scenario
async def test_a_commit_waits_for_all_sent_records(scene: Scene, topic: str) -> None:
    """The commit also waits for a second batch, which is sent only after the response to the first."""
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
def test_an_open_transaction_delays_later_records(cluster, topic, commits):
    """Consumers read later records, even of other producers, only after the transaction ends."""

    async def run(scene: Scene, topic: str) -> None:
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
        await check_no_record_arrives(consumer)
        # The marker has its own offset.
        assert (consumer.last_stable_offset(partition), consumer.highwater(partition)) == (3, 3)

    scenario(run)(cluster, topic)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_consumer_skips_a_marker(cluster, topic, isolation_level):
    """A marker is not a record: a consumer at its offset continues after it, even with minimal fetches."""

    async def run(scene: Scene, topic: str) -> None:
        producer = await scene.producer(transactional_id=topic)
        async with producer.transaction():
            first = await producer.send_and_wait(topic, b"one", partition=0)
        consumer = await scene.consumer(topic, isolation_level=isolation_level, fetch_max_bytes=10)
        consumer.seek(first.topic_partition, first.offset + 1)
        await check_no_record_arrives(consumer)
        assert await consumer.position(first.topic_partition) == first.offset + 2
        async with producer.transaction():
            await producer.send_and_wait(topic, b"two", partition=0)
        assert await read(consumer, 1) == [b"two"]

    scenario(run)(cluster, topic)


@scenario
async def test_committed_and_aborted_transactions_alternate(scene: Scene, topic: str) -> None:
    """All records of committed transactions are read, in order, and no record of aborted ones."""
    producer = await scene.producer(transactional_id=topic)
    for number in range(10):
        await producer.begin_transaction()
        await producer.send(topic, b"%d" % number, partition=0)
        await (producer.abort_transaction() if number % 3 else producer.commit_transaction())
    consumer = await scene.consumer(topic, isolation_level="read_committed")
    assert await read(consumer, 4) == [b"0", b"3", b"6", b"9"]
    await check_no_record_arrives(consumer)
