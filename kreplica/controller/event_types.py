"""What may happen to a controller: frozen values.  Watches, answers and timers make them; one at a time is handled."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_BROKER_EPOCH, TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all events.  Equal ones that wait are one: they say that something changed, not what it is now."""

    def dropped(self) -> None:
        """Nobody will handle it: the controller resigned, or failed in the middle of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Question(Event):
    """Somebody asked and waits: what its handler returns is the answer, a ``KafkaError`` that it raises too.

    Each stands for itself, so two of them never become one.
    """

    answer: Deferred[Any] = field(default_factory=Deferred, kw_only=True)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def settle(self, answer: object) -> None:
        """Give the answer, or the error, where who asked still waits."""
        if not self.answer.called:
            if isinstance(answer, Exception):
                self.answer.errback(answer)
            else:
                self.answer.callback(answer)

    def dropped(self) -> None:
        self.settle(KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more"))


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """``/controller`` was made, overwritten or deleted (or it is time to look for the first time)."""


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """A child of ``/brokers/ids`` came or went, or its data changed."""


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """A child of ``/brokers/topics`` came or went."""


@dataclass(frozen=True, slots=True)
class AssignmentChanged(Event):
    """The data of ``/brokers/topics/T`` changed."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Event):
    """A child of ``/admin/delete_topics`` came or went."""


@dataclass(frozen=True, slots=True)
class ReplicasStopped(Event):
    """A broker answered StopReplica for replicas that are to be deleted.

    :param broker_epoch: of the process that answered.
    :param delete: whether it was the second phase, which removes the files.
    """

    broker_id: int
    broker_epoch: int
    delete: bool
    results: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class RetryDeletions(Event):
    """It is time to try again what brokers could not delete."""


@dataclass(frozen=True, slots=True)
class CommandRefused(Event):
    """A broker answered a command with an error for some partitions.

    :param broker_epoch: which incarnation of it.
    """

    broker_id: int
    broker_epoch: int
    command: str
    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class ReplicasRecovered(Event):
    """A broker took roles for replicas whose log directory had failed."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RetryReplicas(Event):
    """It is time to ask again for replicas whose log directory failed."""


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested(Event):
    """``/admin/reassign_partitions`` was written, or something that it asks for came to its end."""


@dataclass(frozen=True, slots=True)
class PartitionRequestsChanged(Event):
    """Something below ``/admin/partitions_add`` or ``/admin/partitions_remove`` came or went."""


@dataclass(frozen=True, slots=True)
class RemovalDue(Event):
    """A partition that is being removed has been read-only for as long as was asked for."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PlansChanged(Event):
    """A plan below ``/kreplica/plans`` was made, patched, cancelled or removed."""


@dataclass(frozen=True, slots=True)
class PlansDue(Event):
    """Something happened that a plan may wait for."""


@dataclass(frozen=True, slots=True)
class InSyncSetsChanged(Event):
    """Leaders told, in ``/isr_change_notification``, that they wrote in-sync sets."""


@dataclass(frozen=True, slots=True)
class DirectoriesFailed(Event):
    """Brokers told, in ``/log_dir_event_notification``, that a log directory failed."""


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged(Event):
    """Settings of topics changed: unclean elections may be allowed now."""


@dataclass(frozen=True, slots=True)
class PreferredElectionAsked(Event):
    """``/admin/preferred_replica_election`` was written."""


@dataclass(frozen=True, slots=True)
class BalanceLeaders(Event):
    """It is time to see whether preferred replicas lead."""


@dataclass(frozen=True, slots=True, eq=False)
class ShutdownAsked(Question):
    """A broker wants to stop (ControlledShutdown); the answer is the list of partitions that it still leads.

    :param broker_epoch: -1 where the request does not say.
    """

    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class ElectionType(IntEnum):
    """Of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, eq=False)
class ElectionAsked(Question):
    """Somebody wants leaders chosen (ElectLeaders); the answer is an ``ErrorCode`` by partition.

    :param partitions: None for all.
    """

    election_type: ElectionType
    partitions: Collection[TopicPartition] | None


@dataclass(frozen=True, slots=True, eq=False)
class ReassignmentAsked(Question):
    """Somebody wants replicas moved (AlterPartitionReassignments); the answer is a ``KafkaError`` or None by partition.

    :param targets: the replicas that each partition shall have; None cancels its move.
    """

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class MovesAsked(Question):
    """Somebody wants to know which replicas move (ListPartitionReassignments); the answer is a placement by partition.

    :param partitions: None for all.
    """

    partitions: Collection[TopicPartition] | None
