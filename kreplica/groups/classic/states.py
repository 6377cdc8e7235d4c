"""States of a classic group and their valid transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class State(Enum):
    """State of a classic group; the values are the state names that Kafka reports."""

    EMPTY = "Empty"
    """No members; committed offsets may exist."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for all members to send JoinGroup."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All members have joined; waiting for the leader's SyncGroup."""
    STABLE = "Stable"
    """The assignment is committed and available to all members."""
    DEAD = "Dead"
    """Deleted, or coordinated by another broker."""


PREVIOUS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
        State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE}),
        State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
        State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
        State.DEAD: frozenset(State),
    }
)
"""Valid previous states of each state."""
