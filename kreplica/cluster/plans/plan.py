"""A plan: what was asked for, the steps that lead there, and what has become of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kreplica.model import TopicPartition

MOVES_AT_ONCE = 5
"""So many moves of a plan have a broker as one end at a time, where nobody says otherwise."""


class PlanKind(StrEnum):
    """What is asked for; each is made into steps by ``making``."""

    REASSIGN = "reassign"
    REPLICATION_FACTOR = "replication_factor"
    ADD_BROKERS = "add_brokers"
    DRAIN = "drain"
    REBALANCE = "rebalance"
    ADD_PARTITIONS = "add_partitions"
    REMOVE_PARTITIONS = "remove_partitions"


class PlanState(StrEnum):
    """``preparing`` until all of its steps are written; ``pending`` until the controller has taken it up."""

    PREPARING = "preparing"
    PENDING = "pending"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_ended(self) -> bool:
        """Whether nothing will be done for it any more."""
        return self in (PlanState.COMPLETED, PlanState.CANCELLED, PlanState.FAILED)


class Action(StrEnum):
    """What a step does with its partition."""

    MOVE = "move"
    REORDER = "reorder"
    ADD = "add"
    REMOVE = "remove"

    @property
    def is_reassignment(self) -> bool:
        """Whether it changes the replicas of a partition that stays; only that can be taken back."""
        return self in (Action.MOVE, Action.REORDER)


class StepState(StrEnum):
    """What has become of a step."""

    WAITING = "waiting"
    MOVING = "moving"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Never begun, or back where it was."""

    @property
    def is_open(self) -> bool:
        """Whether something may still be done for it."""
        return self in (StepState.WAITING, StepState.MOVING)


@dataclass(frozen=True, slots=True)
class Step:
    """One partition's part of a plan.

    :param before: the replicas when the plan was made, the preferred leader first; none of a partition to be added.
    :param after: the replicas that it shall have; none of a partition to be removed.
    :param bytes: to be copied, to all new replicas together; 0 also where the size is not known.
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
    def arriving(self) -> tuple[int, ...]:
        """The brokers that copy the partition, or begin it empty."""
        return tuple(replica for replica in self.after if replica not in self.before)


@dataclass(frozen=True, slots=True)
class Plan:
    """The header of a plan: all but its steps.

    :param plan_id: ``plan-`` and a number of ten digits; numbers are not used again.
    :param request: what was asked for, without what the steps say better (the list of a reassignment).
    :param steps_count: of all its steps; ``bytes`` that they copy together.
    :param throttle_bytes_per_second: what each broker may copy to and from replicas that are being added; None: as
        much as it can.
    :param moves_at_once: so many moves may have one broker as an end, as the leader or as one that copies.
    :param force: whether it may go on where acknowledged records are lost (``dangers``).
    :param wait_ms: of removed partitions: how long they are read-only first; None leaves it to the broker's setting.
    :param rollback: where it is being cancelled, whether what is finished goes back too.
    :param reason: why it ended as it did, where that is not what was asked for.
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
    """What has become of one step.

    :param reason: why it failed, or what has to be known of how it was done; None where there is nothing to say.
    """

    state: StepState = StepState.WAITING
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """How many steps are where.

    :param started_at_ms: when the first step was begun; None before.
    :param bytes_done: that the finished steps have copied.
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
    def moves(self) -> int:
        """All steps."""
        return self.waiting + self.moving + self.finished + self.failed + self.cancelled
