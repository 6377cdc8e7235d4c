"""kreplica's client library under load."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from benchmarks.client_load import CHUNK, Case, Meter, cases, print_result
from kreplica.client import Cluster, Consumer, ConsumerOptions, Producer, ProducerOptions, TopicPartition


def serve() -> None:
    """Run cases one after another on one reactor."""
    react(lambda reactor: Deferred.fromCoroutine(_serve()), ())


async def _serve() -> None:
    for case in cases():
        async with Cluster(case.bootstrap) as cluster:
            await (produce if case.what == "produce" else consume)(cluster, case)


async def produce(cluster: Cluster, case: Case) -> None:
    """Produce with ``send``, which returns a Deferred for the record, or ``send_all``, for any number of records."""
    options = ProducerOptions(acks=case.acks, batch_size=case.batch_bytes, linger_s=case.linger_ms / 1000)
    async with Producer(cluster, options) as producer:
        topic, values, partitions = case.topic, case.values, case.partitions
        for partition in range(partitions):
            await producer.send(topic, values[0], partition=partition)
        meter = Meter(case.seconds)
        if case.style == "batch":
            meter.records = await producer.send_all(topic, _values(values, meter))
        else:
            while not meter.is_over:
                await producer.room()
                for number, value in enumerate(values):
                    producer.send(topic, value, partition=number % partitions)
                meter.records += CHUNK
            await producer.flush()
        meter.bytes = meter.records * sum(map(len, values)) // CHUNK
        print_result(meter)


def _values(values: list[bytes], meter: Meter) -> Iterator[bytes]:
    while not meter.is_over:
        yield from values


async def consume(cluster: Cluster, case: Case) -> None:
    """Read with ``async for`` or ``batches``."""
    options = ConsumerOptions()
    async with Consumer(cluster, options) as consumer:
        partitions = [TopicPartition(case.topic, number) for number in range(case.partitions)]
        ends = await consumer.end_offsets(partitions)
        await consumer.assign(dict.fromkeys(partitions, 0))
        await consumer.poll(10, records_max=1)
        meter = Meter(case.seconds)
        await (_records if case.style == "record" else _batches)(consumer, meter, sum(ends.values()) - 1)
        print_result(meter)


async def _records(consumer: Consumer, meter: Meter, total: int) -> None:
    count = size = 0
    async for record in consumer:
        size += len(record.value)
        count += 1
        if count == total or (count % CHUNK == 0 and meter.is_over):
            break
    meter.records, meter.bytes = count, size


async def _batches(consumer: Consumer, meter: Meter, total: int) -> None:
    async for batch in consumer.batches():
        for record in batch.records:
            meter.bytes += len(record.value)
        meter.records += len(batch.records)
        if meter.records >= total or meter.is_over:
            break
