"""What may happen to a controller: frozen values.  Watches, answers and timers make them; one at a time is handled."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all events."""


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """``/controller`` was made, overwritten or deleted (or it is time to look for the first time)."""


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """A child of ``/brokers/ids`` came or went."""


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
    """A broker answered StopReplica for replicas of topics that are being deleted.

    :param delete: whether it was the second phase, which removes the files.
    """

    broker_id: int
    delete: bool
    results: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class RetryDeletions(Event):
    """It is time to try again what brokers could not delete."""


@dataclass(frozen=True, slots=True)
class CommandRefused(Event):
    """A broker answered a command with an error for some partitions, or did not answer in time."""

    broker_id: int
    command: str
    errors: tuple[tuple[TopicPartition, ErrorCode], ...]
