"""Transitions of partition and replica states."""

from itertools import product

import pytest

from kreplica.controller.state.states import (
    PARTITION_PREVIOUS,
    REPLICA_PREVIOUS,
    InvalidTransition,
    PartitionState,
    ReplicaState,
    check_transition,
)


@pytest.mark.parametrize(
    ("states", "table", "count"), [(PartitionState, PARTITION_PREVIOUS, 8), (ReplicaState, REPLICA_PREVIOUS, 14)]
)
def test_every_pair_is_in_the_table_or_rejected(states, table, count):
    """Every state can be reached, and only by transitions in the table."""
    allowed = 0
    for old, new in product(states, states):
        if old in table[new]:
            check_transition(table, old, new, "it")
            allowed += 1
        else:
            with pytest.raises(InvalidTransition, match="it"):
                check_transition(table, old, new, "it")
    assert allowed == count
    assert set(table) == set(states)


def test_partition_cannot_come_back_from_nowhere():
    """A partition must be NEW before it is ONLINE."""
    with pytest.raises(InvalidTransition, match="NonExistentPartition -> OnlinePartition"):
        check_transition(PARTITION_PREVIOUS, PartitionState.NON_EXISTENT, PartitionState.ONLINE, "t-0")
