"""Pure rules that decide whether a task writes its micro-batch, skips it because it is decided, or must refuse it.

The number alone does not identify a micro-batch: a new checkpoint starts at 0 again, and decisions expire. Therefore a
decision names its query, and a micro-batch that cannot be distinguished from another is refused, never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.errors import KreplicaError
from kreplica.spark.sink.decision_store import Decision

NONE_DECIDED = -1


@dataclass(frozen=True, slots=True)
class Task:
    """A Spark task that writes part of one micro-batch.

    :param sink_id: shared by all tries of all micro-batches of a sink.
    :param lane: number of the task within the micro-batch.
    :param query: ID of the streaming query, stored in its checkpoint; empty for a batch.
    :param run: ID of the query's run; unique per driver.
    :param attempt: attempt number of the task.
    :param of_stream: True if Spark numbers the micro-batches, starting at 0.
    """

    sink_id: str
    batch_id: int
    lane: int
    query: str = ""
    run: str = "0"
    attempt: int = 0
    of_stream: bool = False


class AnotherAtWork(KreplicaError):
    """Another run writes to the same sink, and has decided micro-batches since this one was planned."""


class OtherQuery(KreplicaError):
    """The sink's name is already used by another query."""


class DecisionsForgotten(KreplicaError):
    """Earlier decisions of the sink have expired, so this micro-batch may already have been written."""


def has_turn(
    decision: Decision | None, task: Task, *, topic: str, batch_after: int | None = None, first_batch: int | None = None
) -> bool:
    """Return True if the task must write its rows, False if its micro-batch was already decided.

    :param decision: the sink's last decision.
    :param topic: topic of all rows; empty if a column names it.
    :param batch_after: the micro-batch that this one must follow; None: not checked.
    :param first_batch: the sink's first micro-batch, as given by the user.
    :raise AnotherAtWork: later micro-batches are decided, or the last decided one is not ``batch_after``.
    :raise OtherQuery: the sink belongs to another query, or the decided micro-batch went to another topic.
    :raise DecisionsForgotten: no decision is stored, and this is not the first micro-batch.
    """
    if decision is None:
        _check_is_first(task, first_batch)
    else:
        _check_is_same(decision, task, topic)
    decided = NONE_DECIDED if decision is None else decision.batch_id
    if decided == task.batch_id:
        return False
    if decided > task.batch_id:
        raise AnotherAtWork(
            f"batch {task.batch_id} of sink {task.sink_id}: {decided} is decided already, and numbers must grow: "
            "another run is at work, or the checkpoint is older than what the sink wrote"
        )
    if batch_after not in (None, decided):
        raise AnotherAtWork(
            f"batch {task.batch_id} of {task.sink_id} is to follow {batch_after}, and {decided} is decided: "
            "another run is or was active"
        )
    return True


def _check_is_first(task: Task, first_batch: int | None) -> None:
    if task.of_stream and task.batch_id not in (0, first_batch):
        raise DecisionsForgotten(
            f"micro-batch {task.batch_id} of query {task.query}: nothing is known of what sink {task.sink_id} decided "
            "before: brokers forget that offsets.retention.minutes after the last micro-batch, or its group was "
            f"deleted. Where its rows were not written before, set kreplica.first.batch={task.batch_id}"
        )


def _check_is_same(decision: Decision, task: Task, topic: str) -> None:
    if decision.query != task.query:
        raise OtherQuery(
            f"sink {task.sink_id} belongs to {_name(decision.query)}, which has decided batch {decision.batch_id}; "
            f"this is batch {task.batch_id} of {_name(task.query)}. Give it a kreplica.sink.id of its own; or, if "
            f"that query has ended and will not be restarted, delete the group {task.sink_id}"
        )
    if not task.of_stream and decision.batch_id == task.batch_id and decision.topic != topic:
        raise OtherQuery(
            f"batch {task.batch_id} of sink {task.sink_id} is decided, and its rows went to {_place(decision.topic)}; "
            f"these are to go to {_place(topic)}. Give each write a kreplica.sink.id of its own"
        )


def _name(query: str) -> str:
    return f"query {query}" if query else "batches that no query numbers"


def _place(topic: str) -> str:
    return f"topic {topic}" if topic else "topics that a column names"
