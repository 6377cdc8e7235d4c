"""A stream's rows, visible once and no more to readers of committed records, whoever dies when.

Spark tries a micro-batch again, with the same number, until its sink has committed it; tasks may be tried again too,
with other rows, and an old driver may still be at work.  So one decision is taken for each micro-batch (``decisions``):

* A task first takes the decider's transactional id over, by which nobody who began before can decide any more; then it
  looks whether the micro-batch is decided already, and does nothing where it is.
* Else it takes its lane's transactional id over, which aborts what an earlier try left; writes its rows in a
  transaction; and leaves that open.
* The driver decides, in a transaction of the decider, and then commits the lanes.  Who finds a micro-batch decided
  commits its lanes again, which does no harm.

With one lane the decision is in the lane's own transaction, so there is nothing between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kreplica.blocking import Cluster, Producer
from kreplica.blocking.transactions import Transactions, end_transaction
from kreplica.errors import ErrorCode, KreplicaError
from kreplica.sansio.errors import BrokerRefused, ClientError, UnsupportedVersion
from kreplica.sansio.lanes import ProducerIdentity
from kreplica.spark.decisions import Decision, decision_offsets, lane_id, make_topic, read_decision
from kreplica.spark.leftovers import Leftover, abort_leftovers, find_leftovers
from kreplica.spark.range_reading import worker_cluster
from kreplica.spark.row_columns import RowsRefused
from kreplica.spark.sink_options import ExactlyOnce, SinkOptions, TwoPhase
from kreplica.spark.writing import producer_options, send_rows

log = logging.getLogger(__name__)

DECIDER_TIMEOUT_S = 60.0
NONE_DECIDED = -1
_GONE = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE,
         ErrorCode.INVALID_PRODUCER_ID_MAPPING)  # fmt: skip


_lanes_before: dict[str, int] = {}
"""By sink: how many lanes the last micro-batch had that this process committed."""


class AnotherAtWork(KreplicaError):
    """Batches of the same sink are written by somebody else, who has decided some since this one was planned."""


class RowsLost(KreplicaError):
    """A lane that was decided is not there any more: its rows are lost, and nothing can mend that here."""


@dataclass(frozen=True, slots=True)
class Task:
    """Who writes.

    :param sink_id: that all tries of all micro-batches of one sink have.
    :param lane: the task's number among those of the micro-batch.
    """

    sink_id: str
    batch_id: int
    lane: int


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """What one task has prepared.

    :param identity: by which its transaction is ended; None where it wrote nothing.
    :param decider: as whom the driver may decide; None with one lane.
    :param was_decided: the micro-batch had been decided before.
    """

    task: Task
    records: int = 0
    identity: ProducerIdentity | None = None
    decider: ProducerIdentity | None = None
    was_decided: bool = False


def prepare_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions, task: Task) -> Prepared:
    """A task's part.

    :raise RowsRefused: a row cannot be written, or several tasks have rows where there is one lane.
    :raise ClientError: the cluster did not take them.
    """
    cluster = worker_cluster(options.bootstrap, options.settings)
    make_topic(cluster, options.decisions_topic)
    if options.exactly_once is ExactlyOnce.ONE:
        return _prepare_one(batches, cluster, options, task)
    decider = _decider(cluster, task.sink_id).initialize()
    if not _has_turn(cluster, options, task):
        _drain(batches)
        return Prepared(task, decider=decider, was_decided=True)
    with _producer(cluster, options, lane_id(task.sink_id, task.lane)) as producer:
        send_rows(batches, producer, cluster, options)
        identity = producer.prepare()
    return Prepared(task, producer.written, identity if producer.written else None, decider)


def _prepare_one(batches: Iterable[pa.RecordBatch], cluster: Cluster, options: SinkOptions, task: Task) -> Prepared:
    if task.lane:
        if any(batch.num_rows for batch in batches):
            raise RowsRefused("kreplica.exactly.once=one: only one task may have rows: write df.coalesce(1)")
        return Prepared(task)
    with _producer(cluster, options, task.sink_id) as producer:
        # After the takeover: nobody who began before can decide any more.
        if not _has_turn(cluster, options, task):
            producer.abort()
            _drain(batches)
            return Prepared(task, was_decided=True)
        send_rows(batches, producer, cluster, options)
        offsets = decision_offsets(options.decisions_topic, Decision(task.batch_id, ()))
        identity = producer.prepare(offsets, task.sink_id)
    return Prepared(task, producer.written, identity)


def _producer(cluster: Cluster, options: SinkOptions, transactional_id: str) -> Producer:
    """A producer that has begun a transaction, without a time-out where that can be had and is wanted."""
    two_phase = options.two_phase is not TwoPhase.OFF
    while True:
        producer = Producer(cluster, producer_options(options.settings, transactional_id, two_phase=two_phase))
        try:
            producer.begin()
        except (UnsupportedVersion, BrokerRefused) as error:
            producer.close(flush=False)
            refused = isinstance(error, UnsupportedVersion) or (
                error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            if not two_phase or not refused or options.two_phase is TwoPhase.REQUIRED:
                raise
            log.info("transactions have a time-out, of %g s: %s", options.settings.transaction_timeout_s, error)
            two_phase = False
        except BaseException:
            producer.close(flush=False)
            raise
        else:
            return producer


def _is_decided(cluster: Cluster, options: SinkOptions, task: Task) -> bool:
    return _last_decided(cluster, options, task) >= task.batch_id


def _has_turn(cluster: Cluster, options: SinkOptions, task: Task) -> bool:
    """Whether the batch is to be written; else it is decided.

    :raise AnotherAtWork: it is planned to follow another than it would.
    """
    decided = _last_decided(cluster, options, task)
    if decided < task.batch_id and options.batch_after not in (None, decided):
        raise AnotherAtWork(
            f"batch {task.batch_id} of {task.sink_id} is to follow {options.batch_after}, and {decided} is decided: "
            "another run is at work, or was"
        )
    return decided < task.batch_id


def _last_decided(cluster: Cluster, options: SinkOptions, task: Task) -> int:
    decision = read_decision(cluster, options.decisions_topic, task.sink_id)
    return NONE_DECIDED if decision is None else decision.batch_id


def _drain(batches: Iterable[pa.RecordBatch]) -> None:
    """Spark waits until its rows are taken."""
    for _ in batches:
        pass


def _decider(cluster: Cluster, sink_id: str) -> Transactions:
    return Transactions(cluster, f"{sink_id}-decider", DECIDER_TIMEOUT_S)


# --- the driver's part ---


def commit_prepared(messages: Sequence[Prepared], options: SinkOptions) -> None:
    """Decide a micro-batch that all tasks have prepared, and commit it; again does no harm.

    :raise RowsLost: what was decided cannot be committed any more.
    :raise ClientError: it is not decided; Spark tries the micro-batch again.
    """
    if not messages:
        return
    task = messages[0].task
    cluster = worker_cluster(options.bootstrap, options.settings)
    if options.exactly_once is ExactlyOnce.ONE:
        for message in messages:
            if message.identity is not None:
                _end(cluster, task.sink_id, message.identity)
        return
    lanes: dict[int, ProducerIdentity] = {}
    if any(message.was_decided for message in messages):
        decision = read_decision(cluster, options.decisions_topic, task.sink_id)
        assert decision is not None
        if decision.batch_id == task.batch_id:
            lanes = _lanes_of(decision)
    else:
        lanes = {each.task.lane: each.identity for each in messages if each.identity is not None}
        leftovers = _leftovers(cluster, task.sink_id, 1 + max(lanes, default=-1))
        _decide(cluster, options, messages, lanes)
        abort_leftovers(cluster, leftovers)
    try:
        _commit_lanes(cluster, task, lanes)
    except RowsLost:
        _take_over_again(cluster, messages)
        raise


def _commit_lanes(cluster: Cluster, task: Task, lanes: Mapping[int, ProducerIdentity]) -> None:
    for number, identity in lanes.items():
        try:
            _end(cluster, lane_id(task.sink_id, number), identity)
        except BrokerRefused as error:
            if error.code not in _GONE:
                raise
            raise RowsLost(
                f"micro-batch {task.batch_id} of {task.sink_id}: lane {number} was decided, and its transaction is not "
                f"there any more: {error}. A longer kafka.transaction.timeout.ms, or kreplica.two.phase, prevents that."
            ) from error


def commit_lanes(cluster: Cluster, sink_id: str, decision: Decision) -> None:
    """Commit what was decided, for who knows that nobody has used the lanes since.

    :raise RowsLost: that cannot be committed any more.
    """
    _commit_lanes(cluster, Task(sink_id, decision.batch_id, 0), _lanes_of(decision))


def take_over(cluster: Cluster, sink_id: str) -> None:
    """Let nobody decide any more who began before."""
    _decider(cluster, sink_id).initialize()


def _lanes_of(decision: Decision) -> dict[int, ProducerIdentity]:
    return {number: each for number, each in enumerate(decision.lanes) if each is not None}


def _leftovers(cluster: Cluster, sink_id: str, count: int) -> list[Leftover]:
    """What tries with more tasks have left: looked for once by each process, and when there are fewer tasks."""
    if _lanes_before.get(sink_id, count + 1) <= count:
        _lanes_before[sink_id] = count
        return []
    found = find_leftovers(cluster, sink_id, count)
    _lanes_before[sink_id] = count
    return found


def _decide(
    cluster: Cluster, options: SinkOptions, messages: Sequence[Prepared], lanes: dict[int, ProducerIdentity]
) -> None:
    task = messages[0].task
    count = 1 + max(lanes, default=-1)
    decision = Decision(task.batch_id, tuple(lanes.get(number) for number in range(count)))
    transactions = _decider_of(cluster, messages)
    transactions.add_offsets(task.sink_id, decision_offsets(options.decisions_topic, decision))
    transactions.end(commit=True)


def _decider_of(cluster: Cluster, messages: Sequence[Prepared]) -> Transactions:
    """As whom the tasks let the driver decide: each took the id over from those before, so the last one counts."""
    transactions = _decider(cluster, messages[0].task.sink_id)
    transactions.identity = max(message.decider for message in messages if message.decider is not None)
    return transactions


def _take_over_again(cluster: Cluster, messages: Sequence[Prepared]) -> None:
    """:raise BrokerRefused: somebody began later, and has used the lanes since: nothing is lost, this driver is old."""
    _decider_of(cluster, messages).initialize()


def _end(cluster: Cluster, transactional_id: str, identity: ProducerIdentity) -> None:
    end_transaction(cluster, transactional_id, identity, commit=True)


def abort_prepared(messages: Sequence[Prepared], options: SinkOptions) -> None:
    """Abort what tasks have prepared, unless the micro-batch is decided; what cannot be aborted is left.

    Spark also aborts a micro-batch whose commit went well, but whose driver did not learn of that.
    """
    if not messages:
        return
    task = messages[0].task
    cluster = worker_cluster(options.bootstrap, options.settings)
    if options.exactly_once is not ExactlyOnce.ONE:
        _decider(cluster, task.sink_id).initialize()  # what is aborted here is decided by nobody any more
        if _is_decided(cluster, options, task):
            return
    for message in messages:
        if message.identity is None:
            continue
        one = options.exactly_once is ExactlyOnce.ONE
        name = task.sink_id if one else lane_id(task.sink_id, message.task.lane)
        try:
            end_transaction(cluster, name, message.identity, commit=False)
        except ClientError as error:
            log.info("transaction %s is not aborted, the next try does: %s", name, error)
