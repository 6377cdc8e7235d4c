"""Data of the znodes of plans; their paths are in ``kreplica.cluster.znodes``.

=============================  =========================================================================================
``/kreplica/plans``            number of the last plan; replaced in the multi that creates a plan, so that one of two
                               concurrent creations fails and is retried
``.../plan-N``                 header; replaced by the controller, and by requests that change or cancel the plan
``.../plan-N/steps/C``         one chunk of the steps, written once
``.../plan-N/progress``        number of steps by state; written by the controller
``.../plan-N/progress/C``      outcome of each step of chunk C; written by the controller.  If absent, all are waiting
=============================  =========================================================================================

The header of a large plan is ``preparing`` until the last chunk is written; no step starts before that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kreplica.cluster import znodes
from kreplica.cluster.json_documents import ZnodeErrors, dump, load
from kreplica.cluster.plans.plan import (
    Action,
    Plan,
    PlanKind,
    PlanProgress,
    PlanState,
    Step,
    StepOutcome,
    StepState,
)

PLAN_PREFIX = "plan-"

STEPS_PER_CHUNK_MAX = 500
CHUNK_BYTES_MAX = 200_000
"""Limits of a chunk (one znode), so that it can be decoded within a few milliseconds."""

STEPS_MAX = 100_000
"""Maximum number of steps in a plan; the controller keeps them in memory."""

BATCH_BYTES_MAX = 500_000
"""Maximum size of one multi."""

REASON_LENGTH_MAX = 150
"""Maximum length of a stored reason, so that the reasons of a chunk fit into its znode."""

REQUEST_BYTES_MAX = 20_000
"""Members of a request that are larger than this are not stored in the header; the steps contain their information."""

_LETTERS = {
    StepState.WAITING: "w",
    StepState.MOVING: "m",
    StepState.FINISHED: "f",
    StepState.FAILED: "x",
    StepState.CANCELLED: "c",
}
_ACTIONS = {action.value: action for action in Action}
_STATES = {letter: state for state, letter in _LETTERS.items()}


class PlanZnode(NamedTuple):
    """A znode to create."""

    path: str
    data: bytes


# --- numbers ----------------------------------------------------------------------------------------------------------


def plan_id(number: int) -> str:
    return f"{PLAN_PREFIX}{number:010d}"


def encode_last_number(number: int) -> bytes:
    """Encode the data of ``/kreplica/plans``."""
    return dump({"version": 1, "last_number": number})


def decode_last_number(data: bytes) -> int:
    """Return the number of the last plan; 0 if there was none (empty znode)."""
    if not data:
        return 0
    document = load(znodes.PLANS, data)
    with ZnodeErrors(znodes.PLANS):
        return int(document["last_number"])


# --- the header -------------------------------------------------------------------------------------------------------


def encode_plan(plan: Plan) -> bytes:
    document: dict[str, Any] = {
        "version": 1,
        "kind": plan.kind.value,
        "state": plan.state.value,
        "created_at_ms": plan.created_at_ms,
        "steps_count": plan.steps_count,
        "bytes": plan.bytes,
        "request": dict(plan.request),
        "comment": plan.comment,
        "throttle_bytes_per_second": plan.throttle_bytes_per_second,
        "moves_at_once": plan.moves_at_once,
        "force": plan.force,
        "wait_ms": plan.wait_ms,
        "rollback": plan.rollback,
        "ended_at_ms": plan.ended_at_ms,
        "reason": plan.reason,
    }
    return dump(document)


def decode_plan(plan_id: str, data: bytes) -> Plan:
    """Parse the header of a plan.

    :raise ZnodeError: the data is malformed; the message contains the path and the reason.
    """
    path = znodes.plan_path(plan_id)
    document = load(path, data)
    with ZnodeErrors(path):
        return Plan(
            plan_id=plan_id,
            kind=PlanKind(document["kind"]),
            state=PlanState(document["state"]),
            created_at_ms=int(document["created_at_ms"]),
            steps_count=int(document["steps_count"]),
            bytes=int(document.get("bytes", 0)),
            request=dict(document.get("request") or {}),
            comment=str(document.get("comment") or ""),
            throttle_bytes_per_second=_positive(document, "throttle_bytes_per_second"),
            moves_at_once=_positive(document, "moves_at_once") or 1,
            force=bool(document.get("force", False)),
            wait_ms=None if document.get("wait_ms") is None else int(document["wait_ms"]),
            rollback=bool(document.get("rollback", False)),
            ended_at_ms=None if document.get("ended_at_ms") is None else int(document["ended_at_ms"]),
            reason=None if document.get("reason") is None else str(document["reason"]),
        )


def _positive(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} must be a number above 0 or null, not {value!r}")
    return value


def kept_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without members that are too large for the header."""
    return {name: value for name, value in request.items() if len(json.dumps(value)) <= REQUEST_BYTES_MAX}


# --- steps ------------------------------------------------------------------------------------------------------------


def chunks(steps: Sequence[Step]) -> list[Sequence[Step]]:
    """Split the steps into non-empty chunks that fit into a znode."""
    found: list[Sequence[Step]] = []
    first = size = 0
    for number, step in enumerate(steps):
        row_size = len(_encode_step(step)) + 1
        if number - first == STEPS_PER_CHUNK_MAX or (size and size + row_size > CHUNK_BYTES_MAX - 100):
            found.append(steps[first:number])
            first, size = number, 0
        size += row_size
    return [*found, steps[first:]] if first < len(steps) else found


def _encode_step(step: Step) -> bytes:
    """Encode a step; formatted directly for speed, because a plan has tens of thousands of steps."""
    before, after = ",".join(map(str, step.before)), ",".join(map(str, step.after))
    topic = json.dumps(step.topic, ensure_ascii=False)
    return f'["{step.action.value}",{topic},{step.partition},[{before}],[{after}],{step.bytes}]'.encode()


def encode_steps(steps: Sequence[Step]) -> bytes:
    """Encode one chunk: each step as ``[action, topic, partition, before, after, bytes]``."""
    return b'{"version":1,"steps":[' + b",".join(map(_encode_step, steps)) + b"]}"


def decode_steps(path: str, data: bytes) -> tuple[Step, ...]:
    """Parse one chunk.

    :param path: path of the chunk's znode, for error messages.
    :raise ZnodeError: the data is malformed; the message contains the path and the reason.
    """
    document = load(path, data)
    with ZnodeErrors(path):
        unknown = sorted({str(row[0]) for row in document["steps"]}.difference(_ACTIONS))
        if unknown:
            raise ValueError(f"unknown action {unknown[0]!r}; the actions are {', '.join(_ACTIONS)}")
        return tuple(_decode_step(*row) for row in document["steps"])


def _decode_step(
    action: str, topic: str, partition: int, before: Sequence[int], after: Sequence[int], size: int
) -> Step:
    if type(topic) is not str:
        raise ValueError(f"expected a topic name, not {topic!r}")
    return Step(_ACTIONS[action], topic, int(partition), tuple(map(int, before)), tuple(map(int, after)), int(size))


# --- progress ---------------------------------------------------------------------------------------------------------


def encode_outcomes(outcomes: Sequence[StepOutcome]) -> bytes:
    """Encode the outcomes of a chunk: a letter for the state of each step, and the reasons."""
    letters = "".join(_LETTERS[outcome.state] for outcome in outcomes)
    reasons = {
        str(index): outcome.reason[:REASON_LENGTH_MAX] for index, outcome in enumerate(outcomes) if outcome.reason
    }
    return dump({"version": 1, "steps": letters, "reasons": reasons})


def decode_outcomes(path: str, data: bytes) -> tuple[StepOutcome, ...]:
    """Parse the outcomes of a chunk.

    :raise ZnodeError: the data is malformed; the message contains the path and the reason.
    """
    document = load(path, data)
    with ZnodeErrors(path):
        reasons = {int(index): str(reason) for index, reason in (document.get("reasons") or {}).items()}
        unknown = sorted({letter for letter in document["steps"] if letter not in _STATES})
        if unknown:
            raise ValueError(f"unknown step state {unknown[0]!r}")
        return tuple(StepOutcome(_STATES[letter], reasons.get(index)) for index, letter in enumerate(document["steps"]))


def encode_progress(progress: PlanProgress) -> bytes:
    return dump(
        {
            "version": 1,
            "waiting": progress.waiting,
            "moving": progress.moving,
            "finished": progress.finished,
            "failed": progress.failed,
            "cancelled": progress.cancelled,
            "bytes": progress.bytes,
            "bytes_done": progress.bytes_done,
            "started_at_ms": progress.started_at_ms,
        }
    )


def decode_progress(path: str, data: bytes) -> PlanProgress:
    """Parse the progress of a plan.

    :raise ZnodeError: the data is malformed; the message contains the path and the reason.
    """
    document = load(path, data)
    with ZnodeErrors(path):
        started = document.get("started_at_ms")
        return PlanProgress(
            waiting=int(document["waiting"]),
            moving=int(document["moving"]),
            finished=int(document["finished"]),
            failed=int(document["failed"]),
            cancelled=int(document["cancelled"]),
            bytes=int(document["bytes"]),
            bytes_done=int(document["bytes_done"]),
            started_at_ms=None if started is None else int(started),
        )


# --- new plans --------------------------------------------------------------------------------------------------------


def encode_chunks(steps: Sequence[Step]) -> tuple[bytes, ...]:
    """Encode all steps, one item per znode. Call it in a thread: 10,000 steps would block the reactor."""
    return tuple(map(encode_steps, chunks(steps)))


def creation(plan: Plan, steps: Sequence[Step], encoded: Sequence[bytes] | None = None) -> Iterator[list[PlanZnode]]:
    """Yield the znodes of a new plan in batches; each batch is written in one multi.

    The caller adds the new number (``encode_last_number``, with the version that was read) to the first batch. If there
    is more than one batch, the header is ``preparing`` in the first batch, and the caller replaces it
    (``encode_plan(plan)``) after the last.

    :param encoded: result of ``encode_chunks``, if the steps have already been encoded.
    """
    pieces = [
        PlanZnode(znodes.plan_steps_path(plan.plan_id, number), chunk)
        for number, chunk in enumerate(encode_chunks(steps) if encoded is None else encoded)
    ]
    totals = PlanProgress(waiting=len(steps), bytes=plan.bytes)
    head = [
        PlanZnode(znodes.plan_path(plan.plan_id), encode_plan(plan)),
        PlanZnode(znodes.plan_steps_path(plan.plan_id), b""),
        PlanZnode(znodes.plan_progress_path(plan.plan_id), encode_progress(totals)),
    ]
    batches = _batches(head, pieces)
    if len(batches) > 1:
        batches[0][0] = PlanZnode(head[0].path, encode_plan(_preparing(plan)))
    yield from batches


def _batches(head: Sequence[PlanZnode], pieces: Sequence[PlanZnode]) -> list[list[PlanZnode]]:
    batches = [list(head)]
    size = sum(len(piece.data) for piece in head)
    for piece in pieces:
        if size + len(piece.data) > BATCH_BYTES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(piece)
        size += len(piece.data)
    return batches


def _preparing(plan: Plan) -> Plan:
    return replace(plan, state=PlanState.PREPARING)
