"""Writes a task's rows as record batches per partition, with the cluster client of the worker process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kreplica.blocking import Cluster, Producer, ProducerOptions
from kreplica.client_core.errors import BrokerRefused, GaveUp
from kreplica.errors import ErrorCode
from kreplica.spark.client_settings import ClientSettings
from kreplica.spark.sink.encoding import encode
from kreplica.spark.sink.options import SinkOptions
from kreplica.spark.sink.row_columns import InvalidRows, RowSorter
from kreplica.spark.source.range_reading import worker_cluster

CHUNK_SIZE_MAX = 32 << 20
"""Approximate maximum bytes of rows encoded together; Spark passes 10,000 rows of any size at a time."""


@dataclass(frozen=True, slots=True)
class WrittenRows(WriterCommitMessage):
    """Result of one task."""

    records: int


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> WrittenRows:
    """Write all rows at least once, and return after they are acknowledged.

    :raise InvalidRows: a row cannot be written.
    :raise ClientError: the cluster did not accept the rows.
    """
    cluster = worker_cluster(options.bootstrap, options.settings)
    with Producer(cluster, producer_options(options.settings)) as producer:
        send_rows(batches, producer, cluster, options)
    return WrittenRows(producer.written)


def producer_options(
    settings: ClientSettings, transactional_id: str | None = None, *, two_phase: bool = False
) -> ProducerOptions:
    """Return the producer options of a task."""
    return ProducerOptions(
        acks=settings.acks,
        codec=settings.codec,
        idempotent=settings.idempotent,
        transactional_id=transactional_id,
        transaction_timeout_s=settings.transaction_timeout_s,
        two_phase=two_phase,
        batch_size=settings.batch_size,
        linger_s=settings.linger_s,
        memory_size_max=settings.memory_size_max,
        delivery_timeout_s=settings.delivery_timeout_s,
    )


def send_rows(batches: Iterable[pa.RecordBatch], producer: Producer, cluster: Cluster, options: SinkOptions) -> None:
    """Pass all rows to a producer."""
    settings = options.settings
    sorter = RowSorter(
        options.topic,
        lambda topic: _partition_count(cluster, topic),
        cluster.runtime.wall_clock_ms,
        cluster.runtime.random.randrange(1 << 16),
    )
    for batch in chain.from_iterable(map(_chunks, batches)):
        for partition, rows in sorter.sort(batch):
            for encoded in encode(
                rows,
                batch_size=settings.batch_size,
                codec=settings.codec,
                transactional=producer.is_transactional,
            ):
                producer.send_batch(partition, encoded.data, encoded.record_count)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into chunks of about ``CHUNK_SIZE_MAX``, since encoding uses several times their size in memory."""
    count = max(1, -(-batch.nbytes // CHUNK_SIZE_MAX))
    rows = max(1, -(-batch.num_rows // count))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _partition_count(cluster: Cluster, topic: str) -> int:
    """Return the number of partitions of a topic.

    :raise InvalidRows: the topic does not exist.
    """
    try:
        return len(cluster.find_topic(topic).partitions)
    except GaveUp as error:
        cause = error.__cause__
        if isinstance(cause, BrokerRefused) and cause.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise InvalidRows(f"topic {topic!r} does not exist, and the sink does not create topics") from error
        raise
