"""The states of a classic group, and what can follow what."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class State(Enum):
    """By the names that Kafka shows."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join anew."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined; the leader's assignment is awaited."""
    STABLE = "Stable"
    """Everybody can have an assignment."""
    DEAD = "Dead"
    """It is not here any more: deleted, or coordinated by another broker."""


PREVIOUS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
        State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE}),
        State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
        State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
        State.DEAD: frozenset(State),
    }
)
"""The states from which each can be reached."""
