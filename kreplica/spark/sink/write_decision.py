"""Whether a micro-batch is to be written, is decided already, or must not be written at all.  Pure.

A number alone does not say what was written: a new checkpoint begins at 0 again, and decisions are forgotten one day.
So a decision says whose it is, and what cannot be told from it is refused, and never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.errors import KreplicaError
from kreplica.spark.sink.decision_store import Decision

NONE_DECIDED = -1


@dataclass(frozen=True, slots=True)
class Task:
    """Who writes.

    :param sink_id: that all tries of all micro-batches of one sink have.
    :param lane: the task's number among those of the micro-batch.
    :param query: the id of the streaming query, which is its checkpoint's; empty where there is none.
    :param run: of the query: two drivers never have the same.
    :param attempt: which one of the task's.
    :param of_stream: Spark numbers the micro-batches, from 0 on.
    """

    sink_id: str
    batch_id: int
    lane: int
    query: str = ""
    run: str = "0"
    attempt: int = 0
    of_stream: bool = False


class AnotherAtWork(KreplicaError):
    """Micro-batches of the same sink are written by somebody else, who has decided some since this one was planned."""


class OtherQuery(KreplicaError):
    """The sink's name is that of another query's sink."""


class DecisionsForgotten(KreplicaError):
    """What the sink has decided before is not known any more, so this micro-batch may have been written."""


def has_turn(
    decision: Decision | None, task: Task, *, topic: str, batch_after: int | None = None, first_batch: int | None = None
) -> bool:
    """Whether a task's rows are to be written; else its micro-batch is decided.

    :param decision: the sink's last one.
    :param topic: that all rows go to; empty where a column says.
    :param batch_after: the micro-batch that this one was planned to follow, where somebody minds.
    :param first_batch: which one the user says is the sink's first.
    :raise AnotherAtWork: later ones are decided, or it is planned to follow another than it would.
    :raise OtherQuery: the sink belongs to another query, or the same number to another topic's rows.
    :raise DecisionsForgotten: nothing is decided, and this is not the first one.
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
            "another run is at work, or was"
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
            f"this is batch {task.batch_id} of {_name(task.query)}. Give it a kreplica.sink.id of its own; or, where "
            f"that one has ended well and never comes back, delete the group {task.sink_id}"
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
