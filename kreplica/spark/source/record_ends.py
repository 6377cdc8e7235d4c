"""Finds the end positions of records, which is possible only sequentially within a batch. A few batches are processed
in Python, many in parallel with numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint16]]"

BATCHES_MIN = 48
"""Mean number of batches processed in parallel above which numpy is faster than Python."""

_VARINT_SHIFT_MAX = 63


def record_ends(buffer: bytes, counts: Sequence[int], sizes: Sequence[int]) -> Numbers:
    """Return the end position of each record in several batches, computed from its length field; the next record
    starts there.

    :param buffer: the records of all batches, concatenated, and at least one byte of padding.
    :param counts: number of records in each batch; ``sizes`` are the batches' record bytes.
    :raise ValueError: the records of a batch do not end at the end of the batch.
    :raise IndexError: a record extends beyond the buffer.
    """
    if sum(counts) >= BATCHES_MIN * max(counts, default=0):
        found = _ends_in_parallel(buffer, np.array(counts, dtype=np.int64), np.array(sizes, dtype=np.int64))
        if found is not None:
            return found
    return _ends_in_sequence(buffer, counts, sizes)


def words_of(buffer: bytes) -> Words:
    """Return the little-endian 16-bit word at each position, without copying."""
    return np.ndarray((len(buffer) - 1,), dtype="<u2", buffer=buffer, strides=(1,))


def _ends_in_parallel(buffer: bytes, counts: Numbers, sizes: Numbers) -> Numbers | None:
    """Process the first record of each batch, then the second of each batch that has one, and so on; None if a
    length field has more than two bytes.
    """
    words = words_of(buffer)
    order = np.argsort(-counts, kind="stable")
    batch_ends = np.cumsum(sizes)
    positions = (batch_ends - sizes)[order]
    first_indexes = (np.cumsum(counts) - counts)[order]
    # Number of batches with at least 1 record, 2 records, ...
    active = len(counts) - np.searchsorted(np.sort(counts), np.arange(1, counts.max() + 1))
    ends: Numbers = np.empty(int(counts.sum()), dtype=np.int64)
    for index, count in enumerate(active.tolist()):
        steps = _STEPS.take(words[positions[:count]])
        if not steps.all():
            return None
        positions[:count] += steps
        ends[first_indexes[:count] + index] = positions[:count]
    if not (positions == batch_ends[order]).all():
        raise ValueError("bytes after the last record")
    return ends


def _ends_in_sequence(buffer: bytes, counts: Sequence[int], sizes: Sequence[int]) -> Numbers:
    ends: list[int] = []
    append = ends.append
    position = limit = 0
    for count, size in zip(counts, sizes, strict=True):
        limit += size
        for _ in repeat(None, count):
            if (byte := buffer[position]) < 0x80:
                position += (byte >> 1) + 1
            elif (second := buffer[position + 1]) < 0x80:
                position += (second << 6 | (byte & 0x7F) >> 1) + 2
            else:
                length, position = _length(buffer, position)
                position += length
            append(position)
        if position != limit:
            raise ValueError("bytes after the last record")
    return np.array(ends, dtype=np.int64)


def _length(buffer: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while shift <= _VARINT_SHIFT_MAX:
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise ValueError("a record length has too many bytes")


def _steps() -> Numbers:
    """Return a table of the distance to the next record, indexed by a record's first two bytes; 0 if the length field
    is longer.
    """
    word = np.arange(1 << 16)
    first, second = word & 0xFF, word >> 8
    steps = np.where(first < 0x80, (first >> 1) + 1, (second << 6 | (first & 0x7F) >> 1) + 2)
    steps[(first >= 0x80) & (second >= 0x80)] = 0
    return steps


_STEPS = _steps()
