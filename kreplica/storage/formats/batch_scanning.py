"""Walking through the batches of a file by their headers, in reads that do not grow with the file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kreplica.errors import KreplicaError
from kreplica.runtime.disk import Buffer, File
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, parse_header

HEADERS_READ_SIZE = 16 * 1024
BATCHES_READ_SIZE = 1024 * 1024


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches between two positions; stops at the first that is not one.

    Bodies are skipped, and read only where batches are so small that this is the shorter way.
    """
    read_size = HEADERS_READ_SIZE
    while position + HEADER_SIZE <= end:
        chunk = file.read_at(position, min(read_size, end - position))
        at = size = 0
        while at + HEADER_SIZE <= len(chunk):
            header = header_at(chunk, at)
            if header is None or position + at + header.size > end:
                return
            yield position + at, header
            size = header.size
            at += size
        if at == 0:
            return
        # Large batches: one header a read, their bodies would be read for nothing.
        read_size = HEADERS_READ_SIZE if 4 * size < HEADERS_READ_SIZE else HEADER_SIZE
        position += at


def scan_batches(
    file: File, position: int, end: int, read_size: int = BATCHES_READ_SIZE, batch_size_max: int = sys.maxsize
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, the batch's bytes) of the whole batches between two positions; the CRC is not checked.

    :param read_size: bytes of one read, where a batch does not take more; at least a header's.
    :param batch_size_max: one that claims to take more is none.
    """
    size_needed = 0
    while position + HEADER_SIZE <= end:
        size = min(max(size_needed, read_size), end - position)
        chunk = memoryview(file.read_at(position, size))
        at = size_needed = 0
        while at + HEADER_SIZE <= len(chunk):
            header = header_at(chunk, at)
            if header is None or header.size > batch_size_max or position + at + header.size > end:
                return
            if at + header.size > len(chunk):
                size_needed = header.size
                break
            yield position + at, header, chunk[at : at + header.size]
            at += header.size
        if len(chunk) < size:
            return
        position += at


def header_at(data: Buffer, at: int) -> BatchHeader | None:
    """The header that stands there, or None where none does."""
    try:
        return parse_header(data, at)
    except KreplicaError:
        return None


def header_after(file: File, position: int, header: BatchHeader) -> BatchHeader | None:
    """The header of the batch behind one that stands there, or None where none is."""
    return header_at(file.read_at(position + header.size, HEADER_SIZE), 0)
