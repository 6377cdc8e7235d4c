"""JSON documents of plans and their schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kreplica.admin.http.schemas import (
    BOOLEAN,
    BROKER_ID,
    COUNT,
    INT64_MAX,
    PARTITION,
    STRING,
    TIME_MS,
    TOPIC,
    listing,
    nullable,
    one_of,
    record,
)
from kreplica.admin.plans.reading import NumberedStep, PlanRead
from kreplica.cluster.plans.eta import seconds_left
from kreplica.cluster.plans.plan import MOVES_AT_ONCE, Action, Plan, PlanKind, PlanProgress, PlanState, StepState
from kreplica.cluster.plans.preview import BrokerChange

COMMENT_LENGTH_MAX = 500
MOVES_AT_ONCE_MAX = 1000

IDS = listing(BROKER_ID)

PROGRESS = record(
    {
        "moves": COUNT,
        "waiting": COUNT,
        "moving": COUNT,
        "finished": COUNT,
        "failed": COUNT,
        "bytes": {**COUNT, "description": "Total bytes to copy."},
        "bytes_done": {**COUNT, "description": "Bytes copied by completed moves and, if known, by ongoing moves."},
        "eta_seconds": {**nullable(COUNT), "description": "Estimated remaining time; null if unknown."},
    },
    title="PlanProgress",
)

PLAN = record(
    {
        "id": STRING,
        "kind": one_of(*(kind.value for kind in PlanKind)),
        "state": one_of(*(state.value for state in PlanState)),
        "created_at_ms": TIME_MS,
        "ended_at_ms": nullable(TIME_MS),
        "comment": STRING,
        "request": {"type": "object", "description": "The request, without long lists, which the moves contain."},
        "throttle_bytes_per_second": {**nullable(COUNT), "description": "Null for no limit."},
        "moves_at_once": {**COUNT, "description": "Maximum number of concurrent moves per broker."},
        "reason": {**nullable(STRING), "description": "Why the controller ended the plan; null if it did not."},
        "progress": PROGRESS,
    },
    title="Plan",
)

MOVE = record(
    {
        "number": COUNT,
        "topic": STRING,
        "partition": PARTITION,
        "action": one_of(*(action.value for action in Action)),
        "from": IDS,
        "to": IDS,
        "bytes": COUNT,
        "bytes_done": {**nullable(COUNT), "description": "Null if the copying brokers do not respond."},
        "state": one_of(*(state.value for state in StepState)),
        "reason": nullable(STRING),
    },
    title="Move",
)

BROKER_CHANGE = record(
    {
        "broker_id": BROKER_ID,
        "replicas_before": COUNT,
        "replicas_after": COUNT,
        "leaders_before": COUNT,
        "leaders_after": COUNT,
        "bytes_in": COUNT,
        "bytes_out": COUNT,
    },
    title="BrokerChange",
)

PREVIEW = {
    "plan": PLAN,
    "moves": {**listing(MOVE), "description": "The first moves; `GET /v1/plans/{id}/moves` returns all."},
    "moves_count": COUNT,
    "bytes": COUNT,
    "eta_seconds": {**nullable(COUNT), "description": "Estimated from the throttle; null without a throttle."},
    "brokers": listing(BROKER_CHANGE),
    "warnings": listing(STRING),
}

THROTTLE = {**nullable({"type": "integer", "minimum": 1, "maximum": INT64_MAX}), "description": "Bytes per second."}
AT_ONCE = {"type": "integer", "minimum": 1, "maximum": MOVES_AT_ONCE_MAX}
TEXT = {"type": "string", "maxLength": COMMENT_LENGTH_MAX}

ASSIGNMENT = record({"topic": TOPIC, "partition": PARTITION, "replicas": listing(BROKER_ID, minItems=1)})

WEIGHT = record({"topic": TOPIC, "partition": PARTITION, "weight": {**COUNT, "maximum": INT64_MAX}})

REQUEST = record(
    {
        "kind": {
            **one_of(*(kind.value for kind in PlanKind)),
            "description": "`reassign` requires `assignments`; `replication_factor` requires `topics` and "
            "`replication_factor`; `add_brokers` and `drain` require `brokers`; `rebalance` may have `topics` and "
            "`weights`; `add_partitions` and "
            "`remove_partitions` require `topic` and `partitions`.",
        },
        "assignments": listing(ASSIGNMENT, minItems=1),
        "topics": listing(TOPIC, minItems=1),
        "weights": {
            **listing(WEIGHT, minItems=1),
            "description": "The load of one replica of each partition, in bytes or bytes per second. "
            "If absent, every partition has the weight 1.",
        },
        "topic": TOPIC,
        "brokers": listing(BROKER_ID, minItems=1),
        "replication_factor": {"type": "integer", "minimum": 1, "maximum": 1000},
        "partitions": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "New partition count."},
        "wait_ms": {**COUNT, "maximum": INT64_MAX, "description": "How long removed partitions stay readable."},
        "throttle_bytes_per_second": THROTTLE,
        "moves_at_once": {**AT_ONCE, "default": MOVES_AT_ONCE},
        "force": {**BOOLEAN, "description": "Continue even if acknowledged records may be lost."},
        "comment": TEXT,
    },
    title="PlanRequest",
    optional=(
        "assignments",
        "topics",
        "weights",
        "topic",
        "brokers",
        "replication_factor",
        "partitions",
        "wait_ms",
        "throttle_bytes_per_second",
        "moves_at_once",
        "force",
        "comment",
    ),
)

PATCH = record(
    {"throttle_bytes_per_second": THROTTLE, "moves_at_once": AT_ONCE, "comment": TEXT},
    optional=("throttle_bytes_per_second", "moves_at_once", "comment"),
    minProperties=1,
)

CANCEL = record(
    {"rollback": {**BOOLEAN, "description": "True to revert completed moves too.", "default": False}},
    optional=("rollback",),
)


def plan_document(plan: Plan, progress: PlanProgress, now_ms: int, *, bytes_moved: int = 0) -> dict[str, Any]:
    """Return the document of a plan.

    :param bytes_moved: bytes copied by ongoing moves.
    """
    return {
        "id": plan.plan_id,
        "kind": plan.kind.value,
        "state": plan.state.value,
        "created_at_ms": plan.created_at_ms,
        "ended_at_ms": plan.ended_at_ms,
        "comment": plan.comment,
        "request": dict(plan.request),
        "throttle_bytes_per_second": plan.throttle_bytes_per_second,
        "moves_at_once": plan.moves_at_once,
        "reason": plan.reason,
        "progress": {
            "moves": progress.steps_count,
            "waiting": progress.waiting,
            "moving": progress.moving,
            "finished": progress.finished,
            "failed": progress.failed,
            "bytes": progress.bytes,
            "bytes_done": min(progress.bytes_done + bytes_moved, progress.bytes),
            "eta_seconds": seconds_left(progress, now_ms),
        },
    }


def move_document(row: NumberedStep, bytes_done: int | None) -> dict[str, Any]:
    """Return the document of a move.

    :param bytes_done: None if unknown.
    """
    step = row.step
    return {
        "number": row.number,
        "topic": step.topic,
        "partition": step.partition,
        "action": step.action.value,
        "from": list(step.before),
        "to": list(step.after),
        "bytes": step.bytes,
        "bytes_done": bytes_done,
        "state": row.outcome.state.value,
        "reason": row.outcome.reason,
    }


def broker_documents(changes: Iterable[BrokerChange]) -> list[dict[str, Any]]:
    return [
        {
            "broker_id": change.broker_id,
            "replicas_before": change.replicas_before,
            "replicas_after": change.replicas_after,
            "leaders_before": change.leaders_before,
            "leaders_after": change.leaders_after,
            "bytes_in": change.bytes_in,
            "bytes_out": change.bytes_out,
        }
        for change in changes
    ]


def etag_of(read: PlanRead) -> str:
    """Return the ETag: the versions of the header and of the progress; a write compares only the header's version."""
    return f"{read.version}.{read.progress_version}"


def header_version(etag: str) -> int | None:
    """Return the header version in an ETag; None if it is malformed."""
    first, _, _ = etag.partition(".")
    return int(first) if first.isdecimal() else None


def copied_of(row: NumberedStep, sizes: Mapping[int, int]) -> int | None:
    """Return the number of bytes that the new replicas of a move have copied.

    :param sizes: known replica sizes by broker.
    """
    if row.outcome.state is StepState.FINISHED:
        return row.step.bytes
    if row.outcome.state is not StepState.MOVING or not row.step.receiving_brokers:
        return 0
    copied_sizes = [sizes[broker] for broker in row.step.receiving_brokers if broker in sizes]
    return min(sum(copied_sizes), row.step.bytes) if copied_sizes else None
