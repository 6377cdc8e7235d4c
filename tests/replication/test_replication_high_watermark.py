"""What is committed, case by case."""

import pytest

from kreplica.replication.high_watermark import advance, required


@pytest.mark.parametrize(
    ("current", "ends", "in_sync", "needed", "expected"),
    [
        (0, [5], 1, 1, 5),  # alone, and allowed to be
        (3, [9, 7, 8], 3, 2, 7),  # the slowest counts
        (8, [9, 7, 8], 3, 2, 8),  # never back
        (3, [9], 1, 2, 3),  # too few in sync: it stands still
        (3, [9, 9], 2, 2, 9),
    ],
)
def test_advance(current, ends, in_sync, needed, expected):
    """The smallest log end, never back, and only while enough replicas are in sync."""
    assert advance(current, ends, in_sync_count=in_sync, in_sync_required=needed) == expected


def test_required():
    """A topic with fewer replicas than the minimum can still commit."""
    assert required(2, 3) == 2
    assert required(2, 1) == 1
