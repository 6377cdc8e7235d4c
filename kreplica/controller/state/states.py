"""States of partitions and replicas, and the valid transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar


class PartitionState(Enum):
    """State of a partition.

    * NON_EXISTENT: never created, or deleted.
    * NEW: has replicas, but no leader has been elected yet.
    * ONLINE: has a leader.
    * OFFLINE: its leader is gone and no replica could be elected.
    """

    __hash__ = object.__hash__  # faster than Enum's hash of the name; states are looked up for every replica

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """State of a replica.

    * NEW: just assigned.
    * ONLINE: its broker is live and has received its role.
    * OFFLINE: its broker is not live or is shutting down, its log directory failed, or it is being removed.
    * DELETION_STARTED: the replica is stopped, and its files are being deleted.
    * DELETION_SUCCESSFUL: the broker has confirmed that the files are gone.
    * DELETION_INELIGIBLE: its broker is down or rejected the deletion.
    """

    __hash__ = object.__hash__

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


S = TypeVar("S", PartitionState, ReplicaState)

P, R = PartitionState, ReplicaState

PARTITION_PREVIOUS: Mapping[PartitionState, frozenset[PartitionState]] = {
    P.NEW: frozenset({P.NON_EXISTENT}),
    P.ONLINE: frozenset({P.NEW, P.ONLINE, P.OFFLINE}),
    P.OFFLINE: frozenset({P.NEW, P.ONLINE, P.OFFLINE}),
    P.NON_EXISTENT: frozenset({P.OFFLINE}),
}
"""Valid previous states of each partition state."""

REPLICA_PREVIOUS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    R.NEW: frozenset({R.NON_EXISTENT}),
    R.ONLINE: frozenset({R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
    R.OFFLINE: frozenset({R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
    R.DELETION_STARTED: frozenset({R.OFFLINE}),
    R.DELETION_SUCCESSFUL: frozenset({R.DELETION_STARTED}),
    R.DELETION_INELIGIBLE: frozenset({R.DELETION_STARTED, R.OFFLINE}),
    R.NON_EXISTENT: frozenset({R.DELETION_SUCCESSFUL}),
}
"""Valid previous states of each replica state."""


class InvalidTransition(Exception):
    """The tables do not contain the transition: a bug in the controller, never invalid input."""


def check_transition(previous: Mapping[S, frozenset[S]], old: S, new: S, subject: object) -> None:
    """Check a transition.

    :raise InvalidTransition: ``new`` cannot follow ``old``.
    """
    if old not in previous[new]:
        raise InvalidTransition(f"{subject}: {old.value} -> {new.value}")
