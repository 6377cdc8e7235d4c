"""Rule for the high watermark, case by case."""

import pytest

from kreplica.replication.leader.high_watermark import held_by_all, may_advance


@pytest.mark.parametrize(
    ("own", "followers", "expected"),
    [
        (5, [], 5),  # alone
        (9, [7, 8], 7),  # the slowest counts
        (9, [-1, 9], -1),  # who has not fetched yet has nothing for certain
        (6, [9, 8], 6),  # the leader itself has yet to sync
    ],
)
def test_what_all_have(own, followers, expected):
    """It is the smallest log end offset of the counted replicas."""
    assert held_by_all(own, followers) == expected


@pytest.mark.parametrize(
    ("in_sync", "required", "eligible", "expected"),
    [
        (1, 1, 0, True),  # alone, and allowed to be
        (3, 2, 0, True),
        (1, 2, 0, False),  # too few in sync
        (2, 2, 1, False),  # somebody outside may still be elected, and must not miss anything
    ],
)
def test_when_nothing_is_committed(in_sync, required, eligible, expected):
    """It does not advance while the ISR is too small or a replica outside is eligible to lead (KIP-966)."""
    assert may_advance(in_sync, required, eligible) is expected
