"""The last few state changes of each partition and their causes, kept in memory and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from kreplica.controller.effects.command_batch import Command
from kreplica.controller.history.step_timeline import Step
from kreplica.model import LeaderAndIsr, TopicPartition

DECISIONS_PER_PARTITION_MAX = 5
PARTITIONS_MAX = 200_000
"""Maximum number of partitions with recorded decisions; the oldest are dropped first."""


@dataclass(slots=True, eq=False)
class Cause:
    """The event that led to decisions; shared by all decisions of one event.

    :param event: name of the event's class.
    :param text: description for operators.
    :param at_ms: time at which the event was noticed, by this broker's wall clock.
    :param controller_epoch: epoch of the deciding controller; -1 for decisions of leaders.
    :param step: the event's step in the timeline, with the brokers that received commands; None outside an event.
    """

    event: str
    text: str
    at_ms: int
    controller_epoch: int
    step: Step | None

    @property
    def notified_brokers(self) -> Sequence[int]:
        """IDs of the brokers that received commands because of this event."""
        return sorted(self.step.notified) if self.step is not None else ()

    def unanswered(self, partition: TopicPartition) -> Sequence[int]:
        """Return the brokers that have not yet responded to a command about this partition."""
        if self.step is None:
            return ()
        waiting = {
            broker
            for command, broker in self.step.unanswered_commands.items()
            if partition in cast(Command, command).partitions
        }
        return sorted(waiting)


Row = tuple[Cause, LeaderAndIsr | None, LeaderAndIsr]
Rows = tuple[Row, ...]

SHARED_ROWS_MAX = 1000
"""Maximum number of recently added rows that later partitions with the same change share."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A state change of a partition.

    :param before: None for the first state.
    :param after: the new state with its leader epoch and partition epoch.
    """

    partition: TopicPartition
    cause: Cause
    before: LeaderAndIsr | None
    after: LeaderAndIsr

    @property
    def unanswered(self) -> Sequence[int]:
        """The brokers that have not yet responded to a command about this decision."""
        return self.cause.unanswered(self.partition)

    @property
    def is_by_leader(self) -> bool:
        """True if the partition's leader made this change; a change by the controller increases the leader epoch."""
        return self.before is not None and self.before.leader_epoch == self.after.leader_epoch

    @property
    def change(self) -> str:
        """Description of the change."""
        return change_text(self.before, self.after)


class DecisionLog:
    """Recorded decisions by partition.

    Rows are tuples of existing objects, and partitions with the same decisions share them, because one event may add
    thousands.
    """

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, Rows] = {}
        self._shared: dict[tuple[int, ...], tuple[Rows, Rows]] = {}
        """Rows before and after an addition, by the identities of the rows before it and of the added objects."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, partition: TopicPartition, row: Row) -> None:
        """Add a decision to those of a partition."""
        rows = self._rows.get(partition, ())
        if not rows and len(self._rows) >= PARTITIONS_MAX:
            del self._rows[next(iter(self._rows))]
        identities = (id(rows), *map(id, row))
        known = self._shared.get(identities)
        if known is None:
            if len(self._shared) >= SHARED_ROWS_MAX:
                self._shared.clear()
            # The identities are valid as long as the entry, because it refers to all of these objects.
            known = self._shared[identities] = (rows, (*rows[1 - DECISIONS_PER_PARTITION_MAX :], row))
        self._rows[partition] = known[1]

    def of(self, partition: TopicPartition) -> Iterator[Decision]:
        """Iterate over a partition's recorded decisions, newest first."""
        for cause, before, after in reversed(self._rows.get(partition, ())):
            yield Decision(partition, cause, before, after)


def change_text(before: LeaderAndIsr | None, after: LeaderAndIsr) -> str:
    """Return a description of the difference between two states."""
    in_sync = f"in sync {list(after.isr)}"
    if before is None:
        return f"broker {after.leader} is the first leader, {in_sync}"
    parts = []
    if before.leader != after.leader:
        old_leader, new_leader = (str(state.leader) if state.leader >= 0 else "none" for state in (before, after))
        parts.append(f"leader {old_leader} -> {new_leader}")
    if before.leader_epoch != after.leader_epoch:
        parts.append(f"leader epoch {before.leader_epoch} -> {after.leader_epoch}")
    if before.isr != after.isr:
        parts.append(f"in sync {list(before.isr)} -> {list(after.isr)}")
    if before.eligible_leader_replicas != after.eligible_leader_replicas:
        parts.append(f"eligible {list(before.eligible_leader_replicas)} -> {list(after.eligible_leader_replicas)}")
    if len(parts) == 1 and before.leader_epoch != after.leader_epoch:
        parts.append("because the replicas or the read-only flag changed")
    return ", ".join(parts) or "state znode rewritten, so that a write based on its old version fails"
