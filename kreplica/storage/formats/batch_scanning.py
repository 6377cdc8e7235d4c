"""Scans the batches of a file by their headers, with reads of bounded size."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kreplica.errors import KreplicaError
from kreplica.runtime.disk import Buffer, File
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, parse_header

HEADERS_READ_SIZE = 16 * 1024
BATCHES_READ_SIZE = 1024 * 1024


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the whole batches between two positions; stops at the first invalid one.

    Bodies are skipped unless the batches are so small that reading them is faster.
    """
    read_size = HEADERS_READ_SIZE
    while position + HEADER_SIZE <= end:
        chunk = file.read_at(position, min(read_size, end - position))
        chunk_position = size = 0
        while chunk_position + HEADER_SIZE <= len(chunk):
            header = header_at(chunk, chunk_position)
            if header is None or position + chunk_position + header.size > end:
                return
            yield position + chunk_position, header
            size = header.size
            chunk_position += size
        if chunk_position == 0:
            return
        # For large batches, read only the headers.
        read_size = HEADERS_READ_SIZE if 4 * size < HEADERS_READ_SIZE else HEADER_SIZE
        position += chunk_position


def scan_batches(
    file: File, position: int, end: int, read_size: int = BATCHES_READ_SIZE, batch_size_max: int = sys.maxsize
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of the whole batches between two positions; the CRC is not checked.

    :param read_size: minimum size of a read, at least the header size.
    :param batch_size_max: a batch that claims a larger size is invalid.
    """
    size_needed = 0
    while position + HEADER_SIZE <= end:
        size = min(max(size_needed, read_size), end - position)
        chunk = memoryview(file.read_at(position, size))
        chunk_position = size_needed = 0
        while chunk_position + HEADER_SIZE <= len(chunk):
            header = header_at(chunk, chunk_position)
            if header is None or header.size > batch_size_max or position + chunk_position + header.size > end:
                return
            if chunk_position + header.size > len(chunk):
                size_needed = header.size
                break
            yield position + chunk_position, header, chunk[chunk_position : chunk_position + header.size]
            chunk_position += header.size
        if len(chunk) < size:
            return
        position += chunk_position


def header_at(data: Buffer, position: int) -> BatchHeader | None:
    """Return the header at this position, or None if it is invalid."""
    try:
        return parse_header(data, position)
    except KreplicaError:
        return None


def header_after(file: File, position: int, header: BatchHeader) -> BatchHeader | None:
    """Return the header of the batch after this one, or None if it is invalid."""
    return header_at(file.read_at(position + header.size, HEADER_SIZE), 0)
