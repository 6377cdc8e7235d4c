"""The states of partitions and replicas, and from which state each may be entered."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar


class PartitionState(Enum):
    """NON_EXISTENT: never made, or deleted.  NEW: has replicas, no leader was chosen yet.  ONLINE: has a leader.
    OFFLINE: its leader died and no other could be chosen."""

    __hash__ = object.__hash__  # each member is one object, and states are looked up for every replica

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """NEW: just assigned.  ONLINE: its broker lives and was told.  OFFLINE: its broker died or it was taken out.
    DELETION_*: the second phase of deletion; INELIGIBLE: its broker is down or answered with an error."""

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
"""For each state of a partition, the states that it may be entered from."""

REPLICA_PREVIOUS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    R.NEW: frozenset({R.NON_EXISTENT}),
    R.ONLINE: frozenset({R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
    R.OFFLINE: frozenset({R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
    R.DELETION_STARTED: frozenset({R.OFFLINE}),
    R.DELETION_SUCCESSFUL: frozenset({R.DELETION_STARTED}),
    R.DELETION_INELIGIBLE: frozenset({R.DELETION_STARTED, R.OFFLINE}),
    R.NON_EXISTENT: frozenset({R.DELETION_SUCCESSFUL}),
}
"""For each state of a replica, the states that it may be entered from."""


class InvalidTransition(Exception):
    """A transition that the tables do not have: a mistake in the controller, never in its input."""


def check_transition(previous: Mapping[S, frozenset[S]], old: S, new: S, what: object) -> None:
    """:raise InvalidTransition: where ``new`` may not be entered from ``old``."""
    if old not in previous[new]:
        raise InvalidTransition(f"{what}: {old.value} -> {new.value}")
