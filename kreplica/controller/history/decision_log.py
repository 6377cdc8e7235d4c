"""What was decided about each partition, and why: the last few state changes of each, in memory and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from kreplica.controller.effects.command_batch import Command
from kreplica.controller.history.step_timeline import Step
from kreplica.model import LeaderAndIsr, TopicPartition

DECISIONS_PER_PARTITION_MAX = 5
PARTITIONS_MAX = 200_000
"""That something is remembered of; then those that were heard of first are forgotten."""


@dataclass(slots=True, eq=False)
class Cause:
    """The event that led to decisions; all decisions of one event share it.

    :param event: the name of its class.
    :param text: what happened, as people say it.
    :param at_ms: when it was noticed, by this broker's wall clock.
    :param controller_epoch: of the office that decided; -1 where leaders did.
    :param step: of the controller's timeline: who was told, and who has not answered; None where nobody is told.
    """

    event: str
    text: str
    at_ms: int
    controller_epoch: int
    step: Step | None

    @property
    def told(self) -> Sequence[int]:
        """The brokers that were told what followed from it."""
        return sorted(self.step.told) if self.step is not None else ()

    def unanswered(self, partition: TopicPartition) -> Sequence[int]:
        """The brokers that were told of a partition and have not answered yet."""
        if self.step is None:
            return ()
        waiting = {
            broker for command, broker in self.step.waits_for.items() if partition in cast(Command, command).what
        }
        return sorted(waiting)


Row = tuple[Cause, LeaderAndIsr | None, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class Decision:
    """A state that a partition was given.

    :param before: None for its first.
    :param after: with its leader epoch and partition epoch.
    """

    partition: TopicPartition
    cause: Cause
    before: LeaderAndIsr | None
    after: LeaderAndIsr

    @property
    def unanswered(self) -> Sequence[int]:
        """The brokers that were told of it and have not answered yet."""
        return self.cause.unanswered(self.partition)

    @property
    def is_leaders(self) -> bool:
        """Whether the partition's leader decided it; whatever a controller decides has another leader epoch."""
        return self.before is not None and self.before.leader_epoch == self.after.leader_epoch

    @property
    def change(self) -> str:
        """What it changed, as people say it."""
        return change_text(self.before, self.after)


class Decided:
    """Filled while events are handled, for thousands of partitions at once: a row is a tuple of what exists already."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, list[Row]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, partition: TopicPartition, row: Row) -> None:
        """A state was written."""
        kept = self._rows.get(partition)
        if kept is None:
            if len(self._rows) >= PARTITIONS_MAX:
                del self._rows[next(iter(self._rows))]
            self._rows[partition] = [row]
        else:
            kept.append(row)
            if len(kept) > DECISIONS_PER_PARTITION_MAX:
                del kept[0]

    def of(self, partition: TopicPartition) -> Iterator[Decision]:
        """What is remembered of a partition, the newest first."""
        for cause, before, after in reversed(self._rows.get(partition, ())):
            yield Decision(partition, cause, before, after)


def change_text(before: LeaderAndIsr | None, after: LeaderAndIsr) -> str:
    """Two states' difference, as people say it."""
    in_sync = f"in sync {list(after.isr)}"
    if before is None:
        return f"broker {after.leader} leads first, {in_sync}"
    parts = []
    if before.leader != after.leader:
        was, now = (str(state.leader) if state.leader >= 0 else "nobody" for state in (before, after))
        parts.append(f"leader {was} -> {now}")
    if before.leader_epoch != after.leader_epoch:
        parts.append(f"leader epoch {before.leader_epoch} -> {after.leader_epoch}")
    if before.isr != after.isr:
        parts.append(f"in sync {list(before.isr)} -> {list(after.isr)}")
    if before.eligible_leader_replicas != after.eligible_leader_replicas:
        parts.append(f"eligible {list(before.eligible_leader_replicas)} -> {list(after.eligible_leader_replicas)}")
    if len(parts) == 1 and before.leader_epoch != after.leader_epoch:
        parts.append("because who holds it, or whether it may be written to, is different now")
    return ", ".join(parts) or "written anew, so that nobody writes by the old one"
