"""Where a group's or transactional id's state is kept."""

from __future__ import annotations

import pytest

from kreplica.coordination.hashing import java_hash, partition_of


@pytest.mark.parametrize(
    ("name", "hashed", "partition"),
    [
        ("", 0, 0),
        ("test", 3556498, 48),
        ("my-group", -1906497762, 12),
        ("polygenelubricants", -(2**31), 0),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00, (0xD83D * 31 + 0xDE00) % 50),
    ],
)
def test_as_java(name: str, hashed: int, partition: int) -> None:
    """Tools and clients of other makes compute the same partition, also for names beyond the basic plane."""
    assert java_hash(name) == hashed
    assert partition_of(name, 50) == partition
