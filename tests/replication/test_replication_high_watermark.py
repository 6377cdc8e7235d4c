"""The rule for the high watermark, case by case."""

import pytest

from kreplica.replication.leader.high_watermark import may_advance, smallest_log_end_offset


@pytest.mark.parametrize(
    ("own", "followers", "expected"),
    [
        (5, [], 5),  # alone
        (9, [7, 8], 7),  # the slowest replica counts
        (9, [-1, 9], -1),  # a replica that has not fetched yet has an unknown position
        (6, [9, 8], 6),  # the leader itself must sync first
    ],
)
def test_high_watermark_is_the_smallest_log_end_offset(own, followers, expected):
    """Only the counted replicas matter."""
    assert smallest_log_end_offset(own, followers) == expected


@pytest.mark.parametrize(
    ("in_sync", "required", "eligible", "expected"),
    [
        (1, 1, 0, True),  # alone, as min.insync.replicas allows
        (3, 2, 0, True),
        (1, 2, 0, False),  # too few replicas in sync
        (2, 2, 1, False),  # a replica outside may still be elected, and must not lack committed records
    ],
)
def test_high_watermark_does_not_advance(in_sync, required, eligible, expected):
    """The ISR is too small, or a replica outside it is eligible to lead (KIP-966)."""
    assert may_advance(in_sync, required, eligible) is expected
