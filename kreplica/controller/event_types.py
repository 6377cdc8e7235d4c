"""The controller's events: immutable values created by watches, responses and timers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_BROKER_EPOCH, TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of events.

    An event from a watch reports that something changed, not its new value, so equal queued events are merged.

    :cvar urgent: True if partitions may be unavailable until the event is handled.  An urgent event precedes all others
        in the queue, and long handlers stop for it (``ControllerTerm.must_stop_early``).
    """

    urgent: ClassVar[bool] = False

    def dropped(self) -> None:
        """Called if the controller resigned or failed before it handled the event."""


@dataclass(frozen=True, slots=True, eq=False)
class ControllerRequest(Event):
    """A request with a response: the handler's return value, or the ``KafkaError`` that it raises.

    Requests compare by identity, so two of them are never merged.
    """

    response: Deferred[Any] = field(default_factory=Deferred, kw_only=True)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def settle(self, result: object) -> None:
        """Send the response or the error, unless the requester has cancelled the request."""
        if not self.response.called:
            if isinstance(result, Exception):
                self.response.errback(result)
            else:
                self.response.callback(result)

    def dropped(self) -> None:
        self.settle(KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller"))


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """``/controller`` was created, overwritten or deleted, or must be checked at the start or after an error."""

    urgent: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """A child of ``/brokers/ids`` was created or deleted, or its data changed."""

    urgent: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """A child of ``/brokers/topics`` was created or deleted."""


@dataclass(frozen=True, slots=True)
class AssignmentChanged(Event):
    """The data of ``/brokers/topics/T`` changed."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Event):
    """A child of ``/admin/delete_topics`` was created or deleted."""


@dataclass(frozen=True, slots=True)
class ReplicasStopped(Event):
    """A broker responded to StopReplica for replicas that must be deleted.

    :param broker_epoch: epoch of the process that responded.
    :param delete: True for the second phase, which deletes the files.
    """

    broker_id: int
    broker_epoch: int
    delete: bool
    results: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class FinishDeletions(Event):
    """The removal of deleted topics' znodes was interrupted by an urgent event.

    :param topics: topics whose znodes may have to be removed.
    """

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetryDeletions(Event):
    """The timer for retrying failed deletions fired."""


@dataclass(frozen=True, slots=True)
class CommandRefused(Event):
    """A broker rejected a command for some partitions.

    :param broker_epoch: epoch of the process that responded.
    """

    broker_id: int
    broker_epoch: int
    command: str
    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class ReplicasRecovered(Event):
    """A broker accepted LeaderAndIsr for replicas whose log directory had failed."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RetryReplicas(Event):
    """The timer for retrying replicas with a failed log directory fired."""


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested(Event):
    """``/admin/reassign_partitions`` was written, or a reassignment that it requested ended."""


@dataclass(frozen=True, slots=True)
class PartitionRequestsChanged(Event):
    """A znode below ``/admin/partitions_add`` or ``/admin/partitions_remove`` was created or deleted."""


@dataclass(frozen=True, slots=True)
class RemovalDue(Event):
    """A partition that is being removed has been read-only for the requested time."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PlansChanged(Event):
    """A plan below ``/kreplica/plans`` was created, patched, cancelled or removed."""


@dataclass(frozen=True, slots=True)
class PlansDue(Event):
    """The state that plans depend on may have changed."""


@dataclass(frozen=True, slots=True)
class IsrChanged(Event):
    """Leaders reported changes of their ISRs in ``/isr_change_notification``."""


@dataclass(frozen=True, slots=True)
class DirectoriesFailed(Event):
    """Brokers reported a failed log directory in ``/log_dir_event_notification``."""

    urgent: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged(Event):
    """Topic configurations changed; unclean elections may be allowed now."""


@dataclass(frozen=True, slots=True)
class PreferredElectionRequested(Event):
    """``/admin/preferred_replica_election`` was written."""


@dataclass(frozen=True, slots=True)
class BalanceLeaders(Event):
    """The timer for the preferred leader check fired."""


@dataclass(frozen=True, slots=True, eq=False)
class ShutdownRequested(ControllerRequest):
    """A broker requested a controlled shutdown.  Response: the list of partitions that it still leads.

    :param broker_epoch: -1 if the request does not contain it.
    """

    urgent: ClassVar[bool] = True
    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class ElectionType(IntEnum):
    """Election type of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, eq=False)
class ElectionRequested(ControllerRequest):
    """A client requested leader elections (ElectLeaders).  Response: an ``ErrorCode`` by partition.

    :param partitions: None for all.
    """

    election_type: ElectionType
    partitions: Collection[TopicPartition] | None


@dataclass(frozen=True, slots=True, eq=False)
class AlterReassignmentsRequested(ControllerRequest):
    """A client requested to start or cancel reassignments (AlterPartitionReassignments).

    Response: a ``KafkaError`` or None by partition.

    :param targets: target replicas by partition; None cancels the reassignment.
    """

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class ListReassignmentsRequested(ControllerRequest):
    """A client requested the list of ongoing reassignments (ListPartitionReassignments).

    Response: a placement by partition.

    :param partitions: None for all.
    """

    partitions: Collection[TopicPartition] | None


RECORDED_NAMES = {
    "AlterReassignmentsRequested": "ReassignmentAsked",
    "ElectionRequested": "ElectionAsked",
    "IsrChanged": "InSyncSetsChanged",
    "ListReassignmentsRequested": "MovesAsked",
    "PreferredElectionRequested": "PreferredElectionAsked",
    "ShutdownRequested": "ShutdownAsked",
}
"""Former names of renamed event types; journals and the causes of decisions still use them."""

CURRENT_NAMES = {recorded: current for current, recorded in RECORDED_NAMES.items()}
"""Current names of event types by recorded name, for those that differ."""


def recorded_name(event: Event) -> str:
    """Return the name of an event's type in journals and in the causes of decisions."""
    name = type(event).__name__
    return RECORDED_NAMES.get(name, name)
