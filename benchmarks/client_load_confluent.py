"""confluent-kafka (librdkafka in C with its own threads) under load, as a reference."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.client_load import CHUNK, Case, Meter, cases, print_result

RECORDS_MAX = 10_000
QUEUED_MAX = 500_000


def serve() -> None:
    """Run cases one after another."""
    for case in cases():
        (produce if case.what == "produce" else consume)(case)


def _delivered(error: Any, _: Any) -> None:
    if error is not None:
        raise RuntimeError(f"produce: {error}")


def produce(case: Case) -> None:
    """Call ``produce``, with a callback for each record (the counterpart of other libraries' futures) or without."""
    producer = Producer(
        {
            "bootstrap.servers": case.bootstrap,
            "acks": case.acks,
            "enable.idempotence": case.idempotent,
            "batch.size": case.batch_bytes,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": QUEUED_MAX,
            "linger.ms": case.linger_ms,
            "max.in.flight.requests.per.connection": case.in_flight,
        }
    )
    topic, values, partitions = case.topic, case.values, case.partitions
    for partition in range(partitions):
        producer.produce(topic, values[0], partition=partition, on_delivery=_delivered)
    producer.flush(10)
    on_delivery = _delivered if case.style == "record" else None
    meter = Meter(case.seconds)
    while not meter.is_over:
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
        meter.records += CHUNK
        producer.poll(0)
        while len(producer) > QUEUED_MAX - CHUNK:
            producer.poll(0.01)
    producer.flush(60)
    meter.bytes = meter.records * sum(map(len, values)) // CHUNK
    print_result(meter)


def consume(case: Case) -> None:
    """Read with ``poll`` or ``consume``."""
    consumer = Consumer(
        {
            "bootstrap.servers": case.bootstrap,
            "group.id": "load",
            "enable.auto.commit": False,
            "check.crcs": True,
            "max.partition.fetch.bytes": case.fetch_bytes,
            "fetch.max.bytes": case.response_bytes,
            "fetch.wait.max.ms": case.wait_ms,
        }
    )
    try:
        partitions = [TopicPartition(case.topic, number) for number in range(case.partitions)]
        total = sum(consumer.get_watermark_offsets(each, 10)[1] for each in partitions)
        consumer.assign([TopicPartition(case.topic, number, OFFSET_BEGINNING) for number in range(case.partitions)])
        total -= len(consumer.consume(1, 10))
        meter = Meter(case.seconds)
        at_once = 1 if case.style == "record" else RECORDS_MAX
        while meter.records < total and not meter.is_over:
            if at_once == 1:
                for _ in range(min(CHUNK, total - meter.records)):
                    meter.bytes += len(consumer.poll(10).value())
                    meter.records += 1
            else:
                for message in consumer.consume(at_once, 0.1):
                    meter.bytes += len(message.value())
                    meter.records += 1
        print_result(meter)
    finally:
        consumer.close()
