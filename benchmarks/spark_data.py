"""Records for the Spark benchmark: fast generation and writing, and digests for comparison."""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.model import TopicPartition
from kreplica.spark.sink.encoding import Rows, encode
from kreplica.spark.source.options import source_options
from kreplica.spark.source.range_reading import read_range
from kreplica.spark.source.ranges import OffsetRange

CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
PARTITIONS = 2 * len(CODECS)
BATCH_SIZE = 16 << 10
CHUNK = 20_000
USERS = 10_000

_WORDS = ("paid", "open", "sent", "returned", "2026-11-22", "Amsterdam", "Nairobi", "express", "standard", "EUR")


def codec_of(partition: int) -> Codec:
    """Return the codec of a partition; each codec is used for two partitions."""
    return CODECS[partition % len(CODECS)]


class RecordMaker:
    """Makes rows with 16-byte keys and values of one size: an increasing number, then words that compress like JSON.

    :param size: size of values in bytes.
    """

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(size)
        fill = size - 20
        texts = []
        for _ in range(1000):
            text = ""
            while len(text) < fill:
                text += f'"{random.integers(1 << 40):x}":"{_WORDS[random.integers(len(_WORDS))]}",'
            texts.append(text[:fill].encode())
        self._texts = pa.array(texts, pa.binary())
        users = pc.utf8_lpad(pa.array(np.arange(USERS)).cast(pa.string()), 12, "0")
        self._keys = pc.binary_join_element_wise("user", users, "").cast(pa.binary())
        self._random = random
        # Recent, because brokers delete old records.
        self._started_ms = time.time_ns() // 1_000_000

    def rows(self, first: int, count: int) -> Rows:
        """Return the next rows; their numbers start with ``first``."""
        numbers = np.arange(first, first + count)
        heads = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0").cast(pa.binary())
        texts = self._texts.take(pa.array(self._random.integers(0, len(self._texts), count)))
        keys = self._keys.take(pa.array(self._random.integers(0, USERS, count)))
        return Rows(self._started_ms + numbers, keys, pc.binary_join_element_wise(heads, texts, b""))


def write(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Write a topic of ``PARTITIONS`` partitions, in batches of 16 KB, with the codec of each partition."""
    maker = RecordMaker(size)
    each = count // PARTITIONS
    with Cluster(bootstrap) as cluster, Producer(cluster, ProducerOptions()) as producer:
        for first in range(0, each, CHUNK):
            for partition in range(PARTITIONS):
                rows = maker.rows(first, min(CHUNK, each - first))
                for batch in encode(rows, batch_size=BATCH_SIZE, codec=codec_of(partition)):
                    producer.send_batch(TopicPartition(topic, partition), batch.data, batch.record_count)


def digests(bootstrap: str, topic: str) -> dict[int, str]:
    """Return a digest of the timestamps, keys and values of each partition's committed records, in order."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    options = source_options(given, is_streaming=False)
    with Cluster(bootstrap) as cluster:
        ends = end_offsets(cluster, topic_partitions(cluster, topic), options.settings.isolation)
    found = {}
    for partition, end in sorted(ends.items()):
        sums: dict[str, Any] = {name: blake2b() for name in ("times", "keys", "key sizes", "values", "value sizes")}
        for batch in read_range(OffsetRange(partition, 0, end), options):
            sums["times"].update(memoryview(batch["timestamp"].cast(pa.int64()).to_numpy()))
            for name, column in (("key", batch["key"]), ("value", batch["value"])):
                sums[f"{name}s"].update(_bytes(column))
                sums[f"{name} sizes"].update(memoryview(pc.fill_null(pc.binary_length(column), -1).to_numpy()))
        found[partition.partition] = blake2b(b"".join(each.digest() for each in sums.values())).hexdigest()
    return found


def _bytes(column: pa.Array) -> memoryview:
    """Return the bytes of all elements as they are laid out in memory, without separators."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return memoryview(column.buffers()[2] or b"")[offsets[column.offset] : offsets[column.offset + len(column)]]
