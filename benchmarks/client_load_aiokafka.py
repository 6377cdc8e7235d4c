"""aiokafka under load."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.client_load import CHUNK, Case, Meter, cases, print_result


def serve() -> None:
    """Run cases one after another, each with its own event loop."""
    for case in cases():
        asyncio.run(produce(case) if case.what == "produce" else consume(case))


async def produce(case: Case) -> None:
    """Produce with ``send``, which waits only for buffer space and returns a future for the record, or with
    ``send_batch``, which returns one for the batch.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=case.bootstrap,
        acks=case.acks,
        enable_idempotence=case.idempotent,
        max_batch_size=case.batch_bytes,
        linger_ms=case.linger_ms,
    )
    async with producer:
        topic, values, partitions = case.topic, case.values, case.partitions
        for partition in range(partitions):
            await producer.send_and_wait(topic, values[0], partition=partition)
        meter = Meter(case.seconds)
        if case.style == "batch":
            await _batches_of(values, producer, topic, partitions, meter)
        else:
            while not meter.is_over:
                for number, value in enumerate(values):
                    await producer.send(topic, value, partition=number % partitions)
                meter.records += CHUNK
        await producer.flush()
        meter.bytes = meter.records * sum(map(len, values)) // CHUNK
        print_result(meter)


async def _batches_of(
    values: list[bytes], producer: AIOKafkaProducer, topic: str, partitions: int, meter: Meter
) -> None:
    number = 0
    batch = producer.create_batch()
    while not meter.is_over:
        for value in values:
            if batch.append(key=None, value=value, timestamp=None) is None:
                await producer.send_batch(batch, topic, partition=number % partitions)
                number += 1
                batch = producer.create_batch()
                batch.append(key=None, value=value, timestamp=None)
        meter.records += CHUNK
    await producer.send_batch(batch, topic, partition=number % partitions)


async def consume(case: Case) -> None:
    """Read with ``async for`` or ``getmany``."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=case.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=case.fetch_bytes,
        fetch_max_bytes=case.response_bytes,
        fetch_max_wait_ms=case.wait_ms,
    )
    async with consumer:
        partitions = [TopicPartition(case.topic, number) for number in range(case.partitions)]
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        await consumer.getone()
        meter = Meter(case.seconds)
        await (_records if case.style == "record" else _batches)(consumer, meter, sum(ends.values()) - 1)
        print_result(meter)


async def _records(consumer: AIOKafkaConsumer, meter: Meter, total: int) -> None:
    count = size = 0
    async for record in consumer:
        size += len(record.value)
        count += 1
        if count == total or (count % CHUNK == 0 and meter.is_over):
            break
    meter.records, meter.bytes = count, size


async def _batches(consumer: AIOKafkaConsumer, meter: Meter, total: int) -> None:
    while meter.records < total and not meter.is_over:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            for record in records:
                meter.bytes += len(record.value)
            meter.records += len(records)
