"""Partition that coordinates a group ID or transactional ID."""

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
def test_hash_equals_javas(name: str, hashed: int, partition: int) -> None:
    """The hash equals Java's, even for characters outside the Basic Multilingual Plane."""
    assert java_hash(name) == hashed
    assert partition_of(name, 50) == partition
