"""Exactly-once writes: every row is visible once to read-committed consumers, despite crashes of drivers and tasks.

Spark retries a micro-batch with the same number until its sink has committed it. Tasks may also be retried, with other
rows, and an earlier driver may still be running. Therefore each micro-batch has one decision (``decision_store``),
written with a transactional ID of the sink, the decider. The transactional ID of a task is called a lane.

* A task first initializes the decider, which fences every earlier decider. Then it checks whether the micro-batch is
  already decided or belongs to another run (``write_decision``); in both cases it writes nothing.
* Otherwise it writes its rows in a transaction of its lane, and leaves the transaction open (``task_transactions``).
* The driver checks that the transactions of all lanes are still open, writes the decision in a transaction of the
  decider, and then commits the lanes. It aborts the transactions of other attempts (``abandoned_transactions``). A run
  whose micro-batch is already decided commits the lanes again, which is harmless, until they are marked as settled.

With a single lane, the decision is part of the lane's transaction, so both are atomic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable, Sequence

from kreplica.blocking import Cluster
from kreplica.blocking.transactions import Transactions, end_transaction
from kreplica.client_core.errors import BrokerRefused, ClientError
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_requests import is_fenced
from kreplica.errors import ErrorCode, KreplicaError
from kreplica.spark.sink.abandoned_transactions import (
    AbandonedTransaction,
    abort_abandoned,
    find_abandoned,
    open_producer,
)
from kreplica.spark.sink.decision_store import (
    DecidedLane,
    Decision,
    decision_offsets,
    lane_id,
    mark_settled,
    read_decision,
)
from kreplica.spark.sink.options import ExactlyOnce, SinkOptions
from kreplica.spark.sink.task_transactions import PreparedTask, decider_of, prepare_rows
from kreplica.spark.sink.write_decision import ConcurrentRun, Task
from kreplica.spark.source.range_reading import worker_cluster

__all__ = [
    "ConcurrentRun",
    "PreparedTask",
    "RowsLost",
    "Task",
    "TaskTransactionAborted",
    "abort_prepared",
    "commit_lanes",
    "commit_prepared",
    "fence_deciders",
    "prepare_rows",
]

log = logging.getLogger(__name__)

SEARCH_INTERVAL_S = 60.0
"""Interval at which a driver looks up abandoned transactions if no task was retried."""

_ABORTED_CODES = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE,
         ErrorCode.INVALID_PRODUCER_ID_MAPPING)  # fmt: skip

_last_search_s: dict[tuple[str, str], float] = {}
"""Time of this process's last lookup of abandoned transactions, by sink and run."""


class TaskTransactionAborted(KreplicaError):
    """A lane was aborted before its micro-batch was decided: no row is visible, and Spark retries the micro-batch."""


class RowsLost(KreplicaError):
    """A lane of a decided micro-batch was aborted: its rows are lost."""


def commit_prepared(messages: Sequence[PreparedTask], options: SinkOptions) -> None:
    """Decide and commit a micro-batch that all tasks have prepared; idempotent.

    :raise TaskTransactionAborted: the micro-batch cannot be decided.
    :raise ConcurrentRun: another run has decided later micro-batches.
    :raise RowsLost: the decided transactions can no longer be committed.
    :raise ClientError: the outcome is unknown; Spark retries the micro-batch.
    """
    if not messages:
        return
    task = messages[0].task
    cluster = worker_cluster(options.bootstrap, options.settings)
    if options.exactly_once is ExactlyOnce.ONE:
        for message in messages:
            if message.identity is not None:
                _commit_transaction(cluster, task.sink_id, message.identity)
    elif any(message.was_decided for message in messages):
        _commit_again(cluster, options, messages)
    else:
        decision = _decide(cluster, options, messages)
        _commit(cluster, options, task, decision)


def _decide(cluster: Cluster, options: SinkOptions, messages: Sequence[PreparedTask]) -> Decision:
    task = messages[0].task
    prepared = {_name(message): message for message in messages if message.identity is not None}
    lanes = tuple(
        DecidedLane(each.task.lane, each.task.attempt, each.identity)
        for each in sorted(prepared.values(), key=lambda message: message.task.lane)
        if each.identity is not None
    )
    abandoned = _find_abandoned(cluster, messages, prepared.keys())
    for name, message in prepared.items():
        if open_producer(cluster, name) != message.identity:
            raise TaskTransactionAborted(
                f"micro-batch {task.batch_id} of {task.sink_id}: the transaction of task {message.task.lane} was "
                "aborted before all tasks had finished, by another run or because it was open for more than "
                f"{options.settings.transaction_timeout_s:g} s (kafka.transaction.timeout.ms); nothing is written"
            )
    decision = Decision(task.batch_id, task.query, options.topic or "", task.run, lanes)
    transactions = _decider(cluster, messages)
    transactions.add_offsets(task.sink_id, decision_offsets(options.decisions_topic, decision))
    transactions.end(commit=True)
    abort_abandoned(cluster, abandoned)
    return decision


def _commit_again(cluster: Cluster, options: SinkOptions, messages: Sequence[PreparedTask]) -> None:
    """Commit the lanes that an earlier attempt decided, and abort the transactions of this attempt."""
    task = messages[0].task
    decision = read_decision(cluster, options.decisions_topic, task.sink_id)
    if decision is None or (decision.batch_id, decision.query) != (task.batch_id, task.query):
        raise ConcurrentRun(f"batch {task.batch_id} of sink {task.sink_id} and later batches were already decided")
    decided = {lane_id(task.sink_id, decision.run, each.number, each.attempt) for each in decision.lanes}
    abandoned = _find_abandoned(cluster, messages, decided)
    _commit(cluster, options, task, decision)
    _abort(cluster, [(_name(message), message) for message in messages], decision)
    if abandoned and _is_latest(cluster, messages):
        abort_abandoned(cluster, abandoned)


def _commit(cluster: Cluster, options: SinkOptions, task: Task, decision: Decision) -> None:
    """Commit the lanes of a decided micro-batch, and mark it as settled."""
    if decision.is_settled:
        return
    try:
        commit_lanes(cluster, task.sink_id, decision)
    except RowsLost:
        latest = read_decision(cluster, options.decisions_topic, task.sink_id)
        if latest is not None and latest.query == decision.query and latest.batch_id > decision.batch_id:
            raise ConcurrentRun(
                f"batches {decision.batch_id} to {latest.batch_id} of sink {task.sink_id} are already written"
            ) from None
        if latest is None or latest.batch_id != decision.batch_id or not latest.is_settled:
            raise
        return
    try:
        mark_settled(cluster, options.decisions_topic, task.sink_id, decision)
    except ClientError as error:
        log.warning("batch %d of %s is committed but not marked as settled: %s", decision.batch_id, task.sink_id, error)


def commit_lanes(cluster: Cluster, sink_id: str, decision: Decision) -> None:
    """Commit the lanes of a decision.

    :raise RowsLost: a lane can no longer be committed.
    """
    if decision.is_settled:
        return
    lost: list[str] = []
    reason: BrokerRefused | None = None
    for lane in decision.lanes:
        try:
            _commit_transaction(cluster, lane_id(sink_id, decision.run, lane.number, lane.attempt), lane.identity)
        except BrokerRefused as error:
            if error.code not in _ABORTED_CODES:
                raise
            lost.append(str(lane.number))
            reason = error
    if lost:
        raise RowsLost(
            f"micro-batch {decision.batch_id} of {sink_id} was decided, but the transactions of tasks "
            f"{', '.join(lost)} (of {len(decision.lanes)}) were aborted before they were committed: {reason}. Their "
            "rows are lost. Transactions without a timeout (kreplica.two.phase) or a longer "
            "kafka.transaction.timeout.ms prevent this. To write the whole micro-batch again, delete the group "
            f"{sink_id}; the rows of the other tasks are then written twice"
        ) from reason


def fence_deciders(cluster: Cluster, sink_id: str) -> None:
    """Initialize the decider's transactional ID, which fences every earlier decider."""
    decider_of(cluster, sink_id).initialize()


def abort_prepared(messages: Sequence[PreparedTask], options: SinkOptions) -> None:
    """Abort the transactions of prepared tasks, unless decided; those that cannot be aborted are left open.

    Spark also calls abort for a committed micro-batch if the driver did not receive the response.
    """
    if not messages:
        return
    task = messages[0].task
    cluster = worker_cluster(options.bootstrap, options.settings)
    if options.exactly_once is ExactlyOnce.ONE:
        _abort(cluster, [(task.sink_id, message) for message in messages], None)
    else:
        _is_latest(cluster, messages)  # Fences the decider that these tasks initialized, whatever the result.
        decision = read_decision(cluster, options.decisions_topic, task.sink_id)
        _abort(cluster, [(_name(message), message) for message in messages], decision)


def _abort(cluster: Cluster, prepared: Iterable[tuple[str, PreparedTask]], decision: Decision | None) -> None:
    """Abort the prepared tasks' transactions that are not part of a decision.

    :param prepared: tasks, each with its transactional ID.
    """
    decided = set() if decision is None else {lane.identity for lane in decision.lanes}
    for name, message in prepared:
        if message.identity is None or message.identity in decided:
            continue
        try:
            end_transaction(cluster, name, message.identity, commit=False)
        except ClientError as error:
            log.info("cannot abort transaction %s: %s", name, error)


def _find_abandoned(
    cluster: Cluster, messages: Sequence[PreparedTask], to_commit: Container[str]
) -> list[AbandonedTransaction]:
    """Look up abandoned transactions after a task retry, otherwise at intervals; empty in between."""
    task, now_s = messages[0].task, time.monotonic()
    key = task.sink_id, task.run
    if now_s - _last_search_s.get(key, -SEARCH_INTERVAL_S) < SEARCH_INTERVAL_S and not any(
        each.task.attempt for each in messages
    ):
        return []
    try:
        found = find_abandoned(cluster, task.sink_id, to_commit)
    except ClientError as error:
        log.warning("sink %s: cannot look up abandoned transactions: %s", task.sink_id, error)
        return []
    _last_search_s[key] = now_s
    return found


def _decider(cluster: Cluster, messages: Sequence[PreparedTask]) -> Transactions:
    """Return the decider of the last task: each task fenced the deciders of earlier tasks."""
    transactions = decider_of(cluster, messages[0].task.sink_id)
    transactions.identity = max(message.decider for message in messages if message.decider is not None)
    return transactions


def _is_latest(cluster: Cluster, messages: Sequence[PreparedTask]) -> bool:
    """Return True if no newer run has started; fences the decider that the tasks initialized."""
    try:
        _decider(cluster, messages).initialize()
    except ClientError as error:
        if not is_fenced(error):
            raise
        return False
    return True


def _name(message: PreparedTask) -> str:
    task = message.task
    return lane_id(task.sink_id, task.run, task.lane, task.attempt)


def _commit_transaction(cluster: Cluster, transactional_id: str, identity: ProducerIdentity) -> None:
    end_transaction(cluster, transactional_id, identity, commit=True)
