"""A task's part of an exactly-once write: it writes its rows in a transaction and leaves it open, unless the
micro-batch is already decided.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kreplica.blocking import Cluster, Producer
from kreplica.blocking.transactions import Transactions
from kreplica.client_core.errors import BrokerRefused, ProducerUnusable, UnsupportedVersion
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.errors import ErrorCode
from kreplica.spark.sink.decision_store import (
    Decision,
    create_decisions_topic,
    decision_offsets,
    lane_id,
    read_decision,
)
from kreplica.spark.sink.options import ExactlyOnce, SinkOptions, TwoPhase
from kreplica.spark.sink.row_columns import InvalidRows
from kreplica.spark.sink.task_writing import producer_options, send_rows
from kreplica.spark.sink.write_decision import Task, should_write
from kreplica.spark.source.range_reading import worker_cluster

log = logging.getLogger(__name__)

DECIDER_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class PreparedTask(WriterCommitMessage):
    """Result of one task.

    :param identity: producer ID and epoch for ending the task's transaction; None if it wrote nothing.
    :param decider: producer ID and epoch that the driver uses to write the decision; None with a single lane.
    :param was_decided: True if the micro-batch was already decided.
    """

    task: Task
    records: int = 0
    identity: ProducerIdentity | None = None
    decider: ProducerIdentity | None = None
    was_decided: bool = False


def prepare_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions, task: Task) -> PreparedTask:
    """Write the rows of a task in a transaction that stays open.

    :raise InvalidRows: a row cannot be written, or several tasks have rows although only one lane is allowed.
    :raise KreplicaError: the micro-batch must not be written; see ``should_write``.
    :raise ClientError: the cluster did not accept the rows.
    """
    cluster = worker_cluster(options.bootstrap, options.settings)
    create_decisions_topic(cluster, options.decisions_topic)
    if options.exactly_once is ExactlyOnce.ONE:
        return _prepare_one(batches, cluster, options, task)
    # Fence earlier deciders first, so that the decision read next cannot change.
    decider = decider_of(cluster, task.sink_id).initialize()
    if not _should_write(cluster, options, task):
        _drain(batches)
        return PreparedTask(task, decider=decider, was_decided=True)
    name = lane_id(task.sink_id, task.run, task.lane, task.attempt)
    with _producer(cluster, options, name) as producer:
        send_rows(batches, producer, cluster, options)
        identity = producer.prepare()
    return PreparedTask(task, producer.written, identity if producer.written else None, decider)


def _prepare_one(batches: Iterable[pa.RecordBatch], cluster: Cluster, options: SinkOptions, task: Task) -> PreparedTask:
    if task.lane:
        if any(batch.num_rows for batch in batches):
            raise InvalidRows("kreplica.exactly.once=one: only one task may have rows; use df.coalesce(1)")
        return PreparedTask(task)
    with _producer(cluster, options, task.sink_id) as producer:
        # Earlier deciders are fenced, so they can no longer change the decision.
        if not _should_write(cluster, options, task):
            producer.abort()
            _drain(batches)
            return PreparedTask(task, was_decided=True)
        send_rows(batches, producer, cluster, options)
        decision = Decision(task.batch_id, task.query, options.topic or "", task.run, is_settled=True)
        identity = producer.prepare(decision_offsets(options.decisions_topic, decision), task.sink_id)
    return PreparedTask(task, producer.written, identity)


def decider_of(cluster: Cluster, sink_id: str) -> Transactions:
    """Return the transactional producer of a sink's decisions.

    A single lane uses the same transactional ID, so the two modes fence each other.
    """
    return Transactions(cluster, sink_id, DECIDER_TIMEOUT_S)


def _should_write(cluster: Cluster, options: SinkOptions, task: Task) -> bool:
    return should_write(
        read_decision(cluster, options.decisions_topic, task.sink_id),
        task,
        topic=options.topic or "",
        batch_after=options.batch_after,
        first_batch=options.first_batch,
    )


def _drain(batches: Iterable[pa.RecordBatch]) -> None:
    """Consume all rows, since Spark waits until they are read."""
    for _ in batches:
        pass


def _producer(cluster: Cluster, options: SinkOptions, transactional_id: str) -> Producer:
    """Return a producer with an open transaction, without a timeout if the options and the brokers allow that."""
    two_phase = options.two_phase is not TwoPhase.OFF
    while True:
        producer = Producer(cluster, producer_options(options.settings, transactional_id, two_phase=two_phase))
        try:
            producer.begin()
        except (UnsupportedVersion, BrokerRefused, ProducerUnusable) as error:
            producer.close(flush=False)
            cause = error.__cause__ if isinstance(error, ProducerUnusable) else error
            is_unsupported = isinstance(cause, UnsupportedVersion) or (
                isinstance(cause, BrokerRefused) and cause.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            if not two_phase or not is_unsupported or options.two_phase is TwoPhase.REQUIRED:
                raise
            log.info("transactions have a timeout of %g s: %s", options.settings.transaction_timeout_s, error)
            two_phase = False
        except BaseException:
            producer.close(flush=False)
            raise
        else:
            return producer
