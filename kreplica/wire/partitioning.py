"""Computes the partition of a key as Kafka's Java clients do."""

from __future__ import annotations

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return the murmur2 hash that Kafka producers use to select partitions, as an unsigned 32-bit number."""
    size = len(key)
    result = _SEED ^ size
    whole = size & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        result = (result * _FACTOR & _MASK) ^ word
    if size != whole:
        result = (result ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    result = (result ^ result >> 13) * _FACTOR & _MASK
    return result ^ result >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition for a key.

    :param partitions: number of partitions of the topic.
    """
    return (murmur2(key) & _POSITIVE) % partitions
