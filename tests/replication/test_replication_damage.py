"""Conditions under which a replica with damaged data discards its log."""

from __future__ import annotations

import pytest

from kreplica.model import NO_LEADER
from kreplica.replication import damaged_replicas
from kreplica.replication.leadership import Leadership

SELF, LEADER, THIRD = 1, 2, 3
EPOCH = 7


def leadership_of(leader: int, isr: tuple[int, ...], eligible: tuple[int, ...] = ()) -> Leadership:
    return Leadership(leader, EPOCH, isr, (1, 2, 3), 0, 1, eligible=eligible)


@pytest.mark.parametrize(
    ("leadership", "leave", "set_damage_aside", "last"),
    [
        pytest.param(leadership_of(SELF, (1, 2)), True, False, False, id="it leads, and another is in sync"),
        pytest.param(leadership_of(SELF, (1,)), False, False, True, id="it leads alone"),
        pytest.param(leadership_of(SELF, (1,), (2,)), False, False, False, id="it leads alone, another is eligible"),
        pytest.param(leadership_of(LEADER, (1, 2)), True, False, False, id="it follows in sync"),
        pytest.param(leadership_of(LEADER, (2, 3)), True, True, False, id="it follows, and is not needed"),
        pytest.param(leadership_of(LEADER, (2,), (1,)), True, False, False, id="it may have to lead again"),
        pytest.param(leadership_of(NO_LEADER, (2,)), False, False, False, id="no leader: another must come back"),
        pytest.param(leadership_of(NO_LEADER, (1,)), False, False, True, id="no leader: it must come back"),
        pytest.param(leadership_of(NO_LEADER, (1, 3)), False, False, False, id="no leader: one of two must come back"),
        pytest.param(leadership_of(NO_LEADER, (3,), (1,)), False, False, False, id="no leader, and it is eligible"),
    ],
)
def test_only_an_unneeded_replica_is_discarded(
    leadership: Leadership, leave: bool, set_damage_aside: bool, last: bool
) -> None:
    """The replica leaves the ISR if other replicas have the records, restarts its log if it cannot be elected, and
    stays if it is alone."""
    assert damaged_replicas.has_other_copy(leadership, SELF) is leave
    assert damaged_replicas.may_discard_damaged_replica(leadership, SELF, EPOCH - 1) is set_damage_aside
    assert damaged_replicas.is_last_copy(leadership, SELF) is last


def test_replica_is_not_discarded_in_an_epoch_of_its_fetches() -> None:
    """The leader may have added the replica to the ISR without the controller knowing it yet."""
    leadership = leadership_of(LEADER, (2, 3))
    assert not damaged_replicas.may_discard_damaged_replica(leadership, SELF, EPOCH)
    assert damaged_replicas.may_discard_damaged_replica(leadership, SELF, EPOCH - 1)
