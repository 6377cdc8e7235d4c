"""Maps group IDs and transactional IDs to partitions of internal topics, as Kafka does."""

from __future__ import annotations

from functools import lru_cache

_LOWEST = -(2**31)
_SHORT_MAX = 100
"""Maximum length of names whose hashes are cached."""


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, which is computed over UTF-16 code units with 32-bit overflow."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(name: str, partitions: int) -> int:
    """Return the partition of a group ID or transactional ID.

    :param partitions: partition count of the internal topic; at least 1.
    """
    value = _short_hash(name) if len(name) <= _SHORT_MAX else java_hash(name)
    return (0 if value == _LOWEST else abs(value)) % partitions


@lru_cache(maxsize=1 << 16)
def _short_hash(name: str) -> int:
    return java_hash(name)
