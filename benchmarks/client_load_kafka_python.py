"""kafka-python under load."""

from __future__ import annotations

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks.client_load import CHUNK, Case, Meter, cases, print_result

RECORDS_MAX = 10_000
"""Maximum number of records per ``poll``; the default of 500 would be a disadvantage."""


def serve() -> None:
    """Run cases one after another."""
    for case in cases():
        (produce if case.what == "produce" else consume)(case)


def produce(case: Case) -> None:
    """Produce with ``send``, which returns a future; the library's thread sends.  No method accepts several records."""
    producer = KafkaProducer(
        bootstrap_servers=case.bootstrap,
        acks=case.acks,
        enable_idempotence=case.idempotent,
        batch_size=case.batch_bytes,
        linger_ms=case.linger_ms,
        max_in_flight_requests_per_connection=case.in_flight,
    )
    with producer:
        topic, values, partitions = case.topic, case.values, case.partitions
        for partition in range(partitions):
            producer.send(topic, values[0], partition=partition).get(10)
        meter = Meter(case.seconds)
        while not meter.is_over:
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % partitions)
            meter.records += CHUNK
        producer.flush()
        meter.bytes = meter.records * sum(map(len, values)) // CHUNK
        print_result(meter)


def consume(case: Case) -> None:
    """Read by iteration or with ``poll``."""
    consumer = KafkaConsumer(
        bootstrap_servers=case.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=case.fetch_bytes,
        fetch_max_bytes=case.response_bytes,
        fetch_max_wait_ms=case.wait_ms,
        max_poll_records=RECORDS_MAX,
    )
    try:
        partitions = [TopicPartition(case.topic, number) for number in range(case.partitions)]
        total = sum(consumer.end_offsets(partitions).values())
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        total -= sum(map(len, consumer.poll(timeout_ms=10_000, max_records=1).values()))
        meter = Meter(case.seconds)
        (_records if case.style == "record" else _batches)(consumer, meter, total)
        print_result(meter)
    finally:
        consumer.close()


def _records(consumer: KafkaConsumer, meter: Meter, total: int) -> None:
    count = size = 0
    for record in consumer:
        size += len(record.value)
        count += 1
        if count == total or (count % CHUNK == 0 and meter.is_over):
            break
    meter.records, meter.bytes = count, size


def _batches(consumer: KafkaConsumer, meter: Meter, total: int) -> None:
    while meter.records < total and not meter.is_over:
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                meter.bytes += len(record.value)
            meter.records += len(records)
