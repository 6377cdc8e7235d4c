"""The blocking client with one broker process: records per second and the client's CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.broker_process import BrokerProcess
from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions, Reader
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import end_offsets, topic_partitions

PARTITIONS = 4
RECORD_SIZES = (100, 1000)
BYTES = {True: 20_000_000, False: 200_000_000}


def run(quick: bool) -> list[dict[str, Any]]:
    """Return a row for each record size and codec."""
    rows = []
    with BrokerProcess() as broker, Cluster(broker.bootstrap) as cluster:
        for size in RECORD_SIZES:
            for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
                topic = f"records-{size}-{codec.name.lower()}"
                create_topic(cluster, topic, PARTITIONS, 1)
                count = BYTES[quick] // size
                row: dict[str, Any] = {"record": f"{size} B", "codec": codec.name.lower(), "records": count}
                row |= _measure("produce", count, size, partial(_produce, cluster, topic, size, count, codec))
                row |= _measure("read", count, size, partial(_read, cluster, topic, count))
                rows.append(row)
    return rows


def _measure(name: str, count: int, size: int, work: Callable[[], None]) -> dict[str, Any]:
    began, cpu = time.monotonic(), time.process_time()
    work()
    seconds = time.monotonic() - began
    return {
        f"{name} records/s": count / seconds,
        f"{name} MB/s": count * size / seconds / 1e6,
        f"{name} CPU us/record": (time.process_time() - cpu) / count * 1e6,
    }


def _produce(cluster: Cluster, topic: str, size: int, count: int, codec: Codec) -> None:
    value = bytes(97 + number % 26 for number in range(size))
    with Producer(cluster, ProducerOptions(codec=codec)) as producer:
        for number in range(count):
            producer.send(topic, value, partition=number % PARTITIONS)


def _read(cluster: Cluster, topic: str, count: int) -> None:
    partitions = topic_partitions(cluster, topic)
    ends = end_offsets(cluster, partitions)
    with Reader(cluster, dict.fromkeys(partitions, 0), ends=ends) as reader:
        read_count = sum(len(batch.records) for batch in reader.batches())
    assert read_count == count, f"{read_count} of {count} records"
