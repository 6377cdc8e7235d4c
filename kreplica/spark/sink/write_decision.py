"""Rules that determine whether a task writes its micro-batch, skips it because it is decided, or fails; no I/O.

The number alone does not identify a micro-batch: a new checkpoint starts at 0 again, and decisions expire. Therefore a
decision contains its query, and a micro-batch that might be mistaken for another fails instead of being skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.errors import KreplicaError
from kreplica.spark.sink.decision_store import Decision

NONE_DECIDED = -1


@dataclass(frozen=True, slots=True)
class Task:
    """A Spark task that writes part of one micro-batch.

    :param sink_id: ID of the sink; the same in all attempts and micro-batches.
    :param lane: number of the task within the micro-batch.
    :param query: ID of the streaming query, stored in its checkpoint; empty for a batch.
    :param run: ID of the query's run; unique per driver.
    :param attempt: attempt number of the task.
    :param is_stream: True if Spark numbers the micro-batches, starting at 0.
    """

    sink_id: str
    batch_id: int
    lane: int
    query: str = ""
    run: str = "0"
    attempt: int = 0
    is_stream: bool = False


class ConcurrentRun(KreplicaError):
    """Another run is writing to the same sink, and has decided micro-batches since this one was planned."""


class SinkOfOtherQuery(KreplicaError):
    """The sink ID is already used by another query."""


class DecisionsExpired(KreplicaError):
    """Earlier decisions of the sink have expired, so this micro-batch may already have been written."""


def should_write(
    decision: Decision | None, task: Task, *, topic: str, batch_after: int | None = None, first_batch: int | None = None
) -> bool:
    """Return True if the task must write its rows, False if its micro-batch was already decided.

    :param decision: the sink's last decision.
    :param topic: topic of all rows; empty if a column contains it.
    :param batch_after: number of the micro-batch that this one must follow; None if that is not checked.
    :param first_batch: number of the sink's first micro-batch, if the user has set it.
    :raise ConcurrentRun: later micro-batches are decided, or the last decided one is not ``batch_after``.
    :raise SinkOfOtherQuery: the sink belongs to another query, or the decided micro-batch went to another topic.
    :raise DecisionsExpired: no decision is stored, and this is not the first micro-batch.
    """
    if decision is None:
        _check_is_first(task, first_batch)
    else:
        _check_is_same(decision, task, topic)
    decided = NONE_DECIDED if decision is None else decision.batch_id
    if decided == task.batch_id:
        return False
    if decided > task.batch_id:
        raise ConcurrentRun(
            f"batch {task.batch_id} of sink {task.sink_id}: batch {decided} is already decided, and numbers must "
            "increase: another run is writing to the sink, or the checkpoint is older than the last written batch"
        )
    if batch_after not in (None, decided):
        raise ConcurrentRun(
            f"batch {task.batch_id} of {task.sink_id} must follow batch {batch_after}, but the last decided batch is "
            f"{decided}: another run has written to the sink"
        )
    return True


def _check_is_first(task: Task, first_batch: int | None) -> None:
    if task.is_stream and task.batch_id not in (0, first_batch):
        raise DecisionsExpired(
            f"micro-batch {task.batch_id} of query {task.query}: sink {task.sink_id} has no earlier decision: its "
            "committed offsets have expired (offsets.retention.minutes), or its group was deleted. If this micro-batch "
            f"was not written before, set kreplica.first.batch={task.batch_id}"
        )


def _check_is_same(decision: Decision, task: Task, topic: str) -> None:
    if decision.query != task.query:
        raise SinkOfOtherQuery(
            f"sink {task.sink_id} is used by {_name(decision.query)} (last batch {decision.batch_id}), but this is "
            f"batch {task.batch_id} of {_name(task.query)}. Set another kreplica.sink.id, or, if the other query "
            f"will not be restarted, delete the group {task.sink_id}"
        )
    if not task.is_stream and decision.batch_id == task.batch_id and decision.topic != topic:
        raise SinkOfOtherQuery(
            f"batch {task.batch_id} of sink {task.sink_id} was already written to {_place(decision.topic)}, but this "
            f"write is to {_place(topic)}. Set a different kreplica.sink.id for each write"
        )


def _name(query: str) -> str:
    return f"query {query}" if query else "batch writes"


def _place(topic: str) -> str:
    return f"topic {topic}" if topic else "the topics of a column"
