"""Which partition of an internal topic keeps what is known of a name: all clients' tools compute the same one."""

from __future__ import annotations

from functools import lru_cache

_LOWEST = -(2**31)
_SHORT_MAX = 100
"""Characters of names whose hashes are kept: the same names come again and again."""


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 code units, with the overflow of 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(name: str, partitions: int) -> int:
    """The partition of a group's id or a transactional id.

    :param partitions: how many the internal topic has, at least 1.
    """
    value = _short_hash(name) if len(name) <= _SHORT_MAX else java_hash(name)
    return (0 if value == _LOWEST else abs(value)) % partitions


@lru_cache(maxsize=1 << 16)
def _short_hash(name: str) -> int:
    return java_hash(name)
