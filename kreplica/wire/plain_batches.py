"""Reads the records of consecutive plain batches as rows, with one call to the kernel for many batches.

A plain batch is neither compressed nor transactional, and it is not a control batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct

from kreplica.wire import kernels
from kreplica.wire.batches import CODEC_MASK, CONTROL_BIT, HEADER_SIZE, LENGTH_END, TRANSACTIONAL_BIT, Bytes
from kreplica.wire.record_columns import Row, RowShape

_NOT_PLAIN = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT
_EPOCH_AND_ATTRIBUTES = Struct(">i5xh").unpack_from


RowRun = tuple[list[Row], int, int, int]
"""Records of one batch, or of consecutive batches of one leader epoch: rows, decompressed size in bytes, offset after
the batches, leader epoch.  The rows may be empty, because compaction leaves batches without records.
"""


def read_plain_batches(
    buffer: Bytes, first: int, shape_of: Callable[[int, int], RowShape[Row]], rows_enough: int, size_enough: int
) -> Generator[RowRun[Row], None, int]:
    """Yield the records of leading batches that are plain, valid, and have the same attributes.

    The caller reads the other batches, and reports their errors; without the kernel, these are all batches.

    :param first: records with smaller offsets are skipped.
    :param shape_of: returns the shape of rows for a leader epoch and attributes.
    :param rows_enough: number of rows after which a run ends; it also ends after ``size_enough`` bytes of batches with
        rows.
    :return: position after the batches.
    """
    read, position, expected, end = kernels.read_batches, 0, None, len(buffer)
    while read is not None and position + HEADER_SIZE <= end:
        epoch, attributes = _EPOCH_AND_ATTRIBUTES(buffer, position + LENGTH_END)
        if attributes & _NOT_PLAIN or attributes != (attributes if expected is None else expected):
            break
        rows, size, after, next_offset = read(
            *shape_of(epoch, attributes), buffer, position, attributes, epoch, first, rows_enough, size_enough
        )
        if after == position:
            break
        yield rows, size, next_offset, epoch
        position, expected = after, attributes
    return position
