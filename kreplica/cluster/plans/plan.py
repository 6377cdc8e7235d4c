"""A plan, its steps, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kreplica.model import TopicPartition

MOVES_AT_ONCE = 5
"""Default maximum number of concurrent moves in which one broker takes part."""


class PlanKind(StrEnum):
    """Kind of a requested change; ``draft`` computes its steps."""

    REASSIGN = "reassign"
    REPLICATION_FACTOR = "replication_factor"
    ADD_BROKERS = "add_brokers"
    DRAIN = "drain"
    REBALANCE = "rebalance"
    ADD_PARTITIONS = "add_partitions"
    REMOVE_PARTITIONS = "remove_partitions"


class PlanState(StrEnum):
    """State of a plan: ``preparing`` until all steps are written, ``pending`` until the controller starts it."""

    PREPARING = "preparing"
    PENDING = "pending"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_ended(self) -> bool:
        """True for a final state."""
        return self in (PlanState.COMPLETED, PlanState.CANCELLED, PlanState.FAILED)


class Action(StrEnum):
    """Kind of change that a step makes to its partition."""

    MOVE = "move"
    REORDER = "reorder"
    ADD = "add"
    REMOVE = "remove"

    @property
    def is_reassignment(self) -> bool:
        """True if the action changes the replicas of an existing partition; only such steps can be rolled back."""
        return self in (Action.MOVE, Action.REORDER)


class StepState(StrEnum):
    """State of a step."""

    WAITING = "waiting"
    MOVING = "moving"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Not started, or rolled back."""

    @property
    def is_open(self) -> bool:
        """True if the step is waiting or in progress."""
        return self in (StepState.WAITING, StepState.MOVING)


@dataclass(frozen=True, slots=True)
class Step:
    """Change of one partition.

    :param before: replicas when the plan was created, preferred leader first; empty for a new partition.
    :param after: target replicas; empty for a partition to remove.
    :param bytes: total bytes to copy to new replicas; 0 if the size is unknown.
    """

    action: Action
    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int = 0

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def receiving_brokers(self) -> tuple[int, ...]:
        """Brokers to which a replica is added."""
        return tuple(replica for replica in self.after if replica not in self.before)


@dataclass(frozen=True, slots=True)
class Plan:
    """Header of a plan, without its steps.

    :param plan_id: ``plan-`` and a ten-digit number; numbers are not reused.
    :param request: the request, without large members whose content is in the steps.
    :param steps_count: number of steps.
    :param bytes: bytes copied by all steps.
    :param throttle_bytes_per_second: limit for traffic of new replicas, per broker and direction; None for no limit.
    :param moves_at_once: maximum number of concurrent moves in which one broker takes part, as leader or new replica.
    :param force: continue if acknowledged records may be lost (``safety_checks``).
    :param wait_ms: time for which removed partitions are read-only before their removal; None for the broker's setting.
    :param rollback: True if cancelling the plan also undoes finished steps.
    :param reason: explanation of the final state, if the plan did not complete as requested.
    """

    plan_id: str
    kind: PlanKind
    state: PlanState
    created_at_ms: int
    steps_count: int
    bytes: int = 0
    request: Mapping[str, Any] = field(default_factory=dict)
    comment: str = ""
    throttle_bytes_per_second: int | None = None
    moves_at_once: int = MOVES_AT_ONCE
    force: bool = False
    wait_ms: int | None = None
    rollback: bool = False
    ended_at_ms: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """State of one step.

    :param reason: reason for a failure, or a remark; None if there is none.
    """

    state: StepState = StepState.WAITING
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """Numbers of steps by state.

    :param started_at_ms: start of the first step; None if no step was started.
    :param bytes_done: bytes copied by finished steps.
    """

    waiting: int = 0
    moving: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    bytes: int = 0
    bytes_done: int = 0
    started_at_ms: int | None = None

    @property
    def steps_count(self) -> int:
        """Total number of steps."""
        return self.waiting + self.moving + self.finished + self.failed + self.cancelled
