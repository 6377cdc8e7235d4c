"""What a replica with damaged bytes may do."""

from __future__ import annotations

import pytest

from kreplica.model import NO_LEADER
from kreplica.replication import damaged_replicas
from kreplica.replication.leadership import Leadership

SELF, LEADER, THIRD = 1, 2, 3
EPOCH = 7


def told(leader: int, isr: tuple[int, ...], eligible: tuple[int, ...] = ()) -> Leadership:
    return Leadership(leader, EPOCH, isr, (1, 2, 3), 0, 1, eligible=eligible)


@pytest.mark.parametrize(
    ("leadership", "leave", "begin_anew", "last"),
    [
        pytest.param(told(SELF, (1, 2)), True, False, False, id="it leads, and another is in sync"),
        pytest.param(told(SELF, (1,)), False, False, True, id="it leads alone"),
        pytest.param(told(SELF, (1,), (2,)), False, False, False, id="it leads alone, and another is eligible"),
        pytest.param(told(LEADER, (1, 2)), True, False, False, id="it follows in sync"),
        pytest.param(told(LEADER, (2, 3)), True, True, False, id="it follows, and nobody counts on it"),
        pytest.param(told(LEADER, (2,), (1,)), True, False, False, id="it may have to lead again"),
        pytest.param(told(NO_LEADER, (2,)), False, False, False, id="nobody leads: another must come back"),
        pytest.param(told(NO_LEADER, (1,)), False, False, True, id="nobody leads: it must come back"),
        pytest.param(told(NO_LEADER, (1, 3)), False, False, False, id="nobody leads: one of two must come back"),
        pytest.param(told(NO_LEADER, (3,), (1,)), False, False, False, id="nobody leads, and it is eligible"),
    ],
)
def test_nothing_is_given_up_that_somebody_counts_on(
    leadership: Leadership, leave: bool, begin_anew: bool, last: bool
) -> None:
    """It leaves where others have the records, begins anew where nobody would elect it, and stays where it is alone."""
    assert damaged_replicas.others_have_it(leadership, SELF) is leave
    assert damaged_replicas.may_begin_anew(leadership, SELF, EPOCH - 1) is begin_anew
    assert damaged_replicas.is_last_copy(leadership, SELF) is last


def test_nothing_is_given_up_in_an_epoch_in_which_it_may_have_fetched() -> None:
    """The leader may have let it in, and the controller, who says that it is out of sync, was not told yet."""
    leadership = told(LEADER, (2, 3))
    assert not damaged_replicas.may_begin_anew(leadership, SELF, EPOCH)
    assert damaged_replicas.may_begin_anew(leadership, SELF, EPOCH - 1)
