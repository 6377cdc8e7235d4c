"""Vectorized choice of partitions: by key hash as in Kafka clients, or round robin."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

SEED = 0x9747B28C
_FACTOR = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)
_SHIFT_24, _SHIFT_13, _SHIFT_15 = np.uint32(24), np.uint32(13), np.uint32(15)


def partitions_of_keys(keys: pa.Array, partitions: int) -> Numbers:
    """Return the partition of each key by the rule in ``kreplica.wire.partitioning``; -1 for null keys.

    :param partitions: number of partitions of the topic.
    """
    if keys.null_count == len(keys):
        return np.full(len(keys), -1, dtype=np.int64)
    found = ((murmur2(keys) & _POSITIVE) % np.uint32(partitions)).astype(np.int64)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def murmur2(keys: pa.Array, seed: int = SEED) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the murmur2 hash of each key; a null key has the hash of an empty key.

    :param seed: 32 bits; clients choose partitions with ``SEED``.
    """
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    # Padding allows a word to be read at every position.
    data = np.frombuffer(bytes(memoryview(keys.buffers()[2] or b"")) + bytes(4), dtype=np.uint8)
    result = np.uint32(seed) ^ sizes.astype(np.uint32)
    for start in range(0, int(sizes.max(initial=0)) & ~3, 4):
        rows = np.flatnonzero(sizes >= start + 4)
        word = _words(data, starts[rows] + start) * _FACTOR
        word = (word ^ word >> _SHIFT_24) * _FACTOR
        result[rows] = (result[rows] * _FACTOR) ^ word
    rows = np.flatnonzero(sizes & 3)
    if rows.size:
        tail_sizes = sizes[rows] & 3
        mask = ((np.uint64(1) << (8 * tail_sizes).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
        word = _words(data, starts[rows] + (sizes[rows] & ~3)) & mask
        result[rows] = (result[rows] ^ word) * _FACTOR
    result = (result ^ result >> _SHIFT_13) * _FACTOR
    return result ^ result >> _SHIFT_15


def _words(data: np.ndarray[Any, np.dtype[np.uint8]], positions: Numbers) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the little-endian 32-bit words at the given positions."""
    word = data[positions].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
