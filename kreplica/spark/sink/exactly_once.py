"""A stream's rows, visible once and no more to readers of committed records, whoever dies when.

Spark tries a micro-batch again, with the same number, until its sink has committed it; tasks may be tried again too,
with other rows, and an old driver may still be at work.  So one decision is taken for each micro-batch (``decisions``):

* A task first takes the decider's transactional id over, by which nobody who began before can decide any more; then it
  looks whether the micro-batch is decided already, or is another's (``turns``), and writes nothing where it is.
* Else it writes its rows in a transaction of a lane of its own, and leaves that open (``preparing``).
* The driver looks whether all lanes are still open, decides, in a transaction of the decider, and then commits the
  lanes; what other tries left is aborted (``leftovers``).  Who finds a micro-batch decided commits its lanes again,
  which does no harm, until they are noted as settled.

With one lane the decision is in the lane's own transaction, so there is nothing between the two.
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
from kreplica.spark.sink.abandoned_transactions import Leftover, abort_leftovers, find_leftovers, open_identity
from kreplica.spark.sink.decision_store import DecidedLane, Decision, decision_offsets, lane_id, read_decision, settle
from kreplica.spark.sink.options import ExactlyOnce, SinkOptions
from kreplica.spark.sink.task_transactions import Prepared, decider_of, prepare_rows
from kreplica.spark.sink.write_decision import AnotherAtWork, Task
from kreplica.spark.source.range_reading import worker_cluster

__all__ = [
    "AnotherAtWork",
    "LaneGone",
    "Prepared",
    "RowsLost",
    "Task",
    "abort_prepared",
    "commit_lanes",
    "commit_prepared",
    "prepare_rows",
    "take_over",
]

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 60.0
"""So often a driver looks for leftovers of which nothing tells it."""

_GONE = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE,
         ErrorCode.INVALID_PRODUCER_ID_MAPPING)  # fmt: skip

_looked_s: dict[tuple[str, str], float] = {}
"""By sink and run: when this process looked for leftovers."""


class LaneGone(KreplicaError):
    """A lane was aborted before its micro-batch was decided: nothing is written, the micro-batch is tried again."""


class RowsLost(KreplicaError):
    """A lane that was decided is not there any more: its rows are lost, and nothing can mend that here."""


def commit_prepared(messages: Sequence[Prepared], options: SinkOptions) -> None:
    """Decide a micro-batch that all tasks have prepared, and commit it; again does no harm.

    :raise LaneGone: it is not decided, and cannot be; so for ``AnotherAtWork``.
    :raise RowsLost: what was decided cannot be committed any more.
    :raise ClientError: it may be decided or not; Spark tries the micro-batch again.
    """
    if not messages:
        return
    task = messages[0].task
    cluster = worker_cluster(options.bootstrap, options.settings)
    if options.exactly_once is ExactlyOnce.ONE:
        for message in messages:
            if message.identity is not None:
                _end(cluster, task.sink_id, message.identity)
    elif any(message.was_decided for message in messages):
        _commit_again(cluster, options, messages)
    else:
        decision = _decide(cluster, options, messages)
        _commit(cluster, options, task, decision)


def _decide(cluster: Cluster, options: SinkOptions, messages: Sequence[Prepared]) -> Decision:
    task = messages[0].task
    prepared = {_name(message): message for message in messages if message.identity is not None}
    lanes = tuple(
        DecidedLane(each.task.lane, each.task.attempt, each.identity)
        for each in sorted(prepared.values(), key=lambda message: message.task.lane)
        if each.identity is not None
    )
    leftovers = _leftovers(cluster, messages, prepared.keys())
    for name, message in prepared.items():
        if open_identity(cluster, name) != message.identity:
            raise LaneGone(
                f"micro-batch {task.batch_id} of {task.sink_id}: the transaction of task {message.task.lane} was "
                "aborted before all tasks were done, by another run or because it took longer than "
                f"{options.settings.transaction_timeout_s:g} s (kafka.transaction.timeout.ms); nothing is written"
            )
    decision = Decision(task.batch_id, task.query, options.topic or "", task.run, lanes)
    transactions = _decider(cluster, messages)
    transactions.add_offsets(task.sink_id, decision_offsets(options.decisions_topic, decision))
    transactions.end(commit=True)
    abort_leftovers(cluster, leftovers)
    return decision


def _commit_again(cluster: Cluster, options: SinkOptions, messages: Sequence[Prepared]) -> None:
    """Commit what an earlier try decided; of this one nothing stays."""
    task = messages[0].task
    decision = read_decision(cluster, options.decisions_topic, task.sink_id)
    if decision is None or (decision.batch_id, decision.query) != (task.batch_id, task.query):
        raise AnotherAtWork(f"batch {task.batch_id} of sink {task.sink_id} was decided, and others have been since")
    decided = {lane_id(task.sink_id, decision.run, each.number, each.attempt) for each in decision.lanes}
    leftovers = _leftovers(cluster, messages, decided)
    _commit(cluster, options, task, decision)
    _abort(cluster, [(_name(message), message) for message in messages], decision)
    if leftovers and _is_latest(cluster, messages):
        abort_leftovers(cluster, leftovers)


def _commit(cluster: Cluster, options: SinkOptions, task: Task, decision: Decision) -> None:
    """Commit the lanes of a micro-batch that is decided, and note that."""
    if decision.is_settled:
        return
    try:
        commit_lanes(cluster, task.sink_id, decision)
    except RowsLost:
        now = read_decision(cluster, options.decisions_topic, task.sink_id)
        if now is not None and now.query == decision.query and now.batch_id > decision.batch_id:
            raise AnotherAtWork(
                f"batch {decision.batch_id} of sink {task.sink_id} is written, and so are others up to {now.batch_id}"
            ) from None
        if now is None or now.batch_id != decision.batch_id or not now.is_settled:
            raise
        return
    try:
        settle(cluster, options.decisions_topic, task.sink_id, decision)
    except ClientError as error:
        log.warning("batch %d of %s is committed, which is not noted: %s", decision.batch_id, task.sink_id, error)


def commit_lanes(cluster: Cluster, sink_id: str, decision: Decision) -> None:
    """Commit what was decided.

    :raise RowsLost: that cannot be committed any more.
    """
    if decision.is_settled:
        return
    lost: list[str] = []
    reason: BrokerRefused | None = None
    for lane in decision.lanes:
        try:
            _end(cluster, lane_id(sink_id, decision.run, lane.number, lane.attempt), lane.identity)
        except BrokerRefused as error:
            if error.code not in _GONE:
                raise
            lost.append(str(lane.number))
            reason = error
    if lost:
        raise RowsLost(
            f"micro-batch {decision.batch_id} of {sink_id} was decided, and before it was committed the transactions "
            f"of its tasks {', '.join(lost)} of {len(decision.lanes)} were aborted: {reason}. Their rows are "
            "not there. Brokers that allow transactions without a time-out (kreplica.two.phase), or a longer "
            f"kafka.transaction.timeout.ms, prevent that. Delete the group {sink_id} to have all of the micro-batch "
            "written again, with the rows of the other tasks twice"
        ) from reason


def take_over(cluster: Cluster, sink_id: str) -> None:
    """Let nobody decide any more who began before."""
    decider_of(cluster, sink_id).initialize()


def abort_prepared(messages: Sequence[Prepared], options: SinkOptions) -> None:
    """Abort what tasks have prepared, unless it is decided; what cannot be aborted is left.

    Spark also aborts a micro-batch whose commit went well, but whose driver did not learn of that.
    """
    if not messages:
        return
    task = messages[0].task
    cluster = worker_cluster(options.bootstrap, options.settings)
    if options.exactly_once is ExactlyOnce.ONE:
        _abort(cluster, [(task.sink_id, message) for message in messages], None)
    else:
        _is_latest(cluster, messages)  # Either way: as who these tasks said nobody decides from now on.
        decision = read_decision(cluster, options.decisions_topic, task.sink_id)
        _abort(cluster, [(_name(message), message) for message in messages], decision)


def _abort(cluster: Cluster, prepared: Iterable[tuple[str, Prepared]], decision: Decision | None) -> None:
    """Abort what tasks prepared, by transactional id, where it is no part of a decision."""
    decided = set() if decision is None else {lane.identity for lane in decision.lanes}
    for name, message in prepared:
        if message.identity is None or message.identity in decided:
            continue
        try:
            end_transaction(cluster, name, message.identity, commit=False)
        except ClientError as error:
            log.info("transaction %s is not aborted here: %s", name, error)


def _leftovers(cluster: Cluster, messages: Sequence[Prepared], wanted: Container[str]) -> list[Leftover]:
    """What other tries have left: looked for first, whenever a task was tried again, and now and then."""
    task, now_s = messages[0].task, time.monotonic()
    key = task.sink_id, task.run
    if now_s - _looked_s.get(key, -LOOK_INTERVAL_S) < LOOK_INTERVAL_S and not any(
        each.task.attempt for each in messages
    ):
        return []
    try:
        found = find_leftovers(cluster, task.sink_id, wanted)
    except ClientError as error:
        log.warning("sink %s: what earlier tries left is looked for next time: %s", task.sink_id, error)
        return []
    _looked_s[key] = now_s
    return found


def _decider(cluster: Cluster, messages: Sequence[Prepared]) -> Transactions:
    """As whom the tasks let the driver decide: each took the id over from those before, so the last one counts."""
    transactions = decider_of(cluster, messages[0].task.sink_id)
    transactions.identity = max(message.decider for message in messages if message.decider is not None)
    return transactions


def _is_latest(cluster: Cluster, messages: Sequence[Prepared]) -> bool:
    """Whether nobody began after these tasks; from now on nobody decides as who they said."""
    try:
        _decider(cluster, messages).initialize()
    except ClientError as error:
        if not is_fenced(error):
            raise
        return False
    return True


def _name(message: Prepared) -> str:
    task = message.task
    return lane_id(task.sink_id, task.run, task.lane, task.attempt)


def _end(cluster: Cluster, transactional_id: str, identity: ProducerIdentity) -> None:
    end_transaction(cluster, transactional_id, identity, commit=True)
