"""Files with one record per line, optionally compressed with gzip or zstd."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import cramjam

from kreplica.cli.http.session import CommandFailed
from kreplica.errors import reason_of
from kreplica.transfer.complete_files import replaced_when_complete

FRAME_SIZE = 4 << 20
"""Uncompressed bytes per zstd frame; frames are compressed and decompressed one at a time."""

FRAME_SIZE_MAX = 256 << 20
READ_SIZE = 1 << 18
LINE_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PARQUET_SUFFIX = ".parquet"

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Sink(Protocol):
    """Destination of lines."""

    def write(self, data: bytes) -> object: ...

    def close(self) -> None: ...


def file_format(path: Path) -> str:
    """Return the format of a file by its suffix: one of ``LINE_SUFFIXES``, or ``PARQUET_SUFFIX``.

    :raise CommandFailed: the file name has another suffix.
    """
    for suffix in (*LINE_SUFFIXES, PARQUET_SUFFIX):
        if path.name.endswith(suffix):
            return suffix
    suffixes = f"{', '.join(LINE_SUFFIXES)} or {PARQUET_SUFFIX}"
    raise CommandFailed(f"{path}: unknown file format; the name must end with {suffixes}")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which is renamed to ``path`` if the block succeeds, otherwise deleted.

    :raise CommandFailed: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with replaced_when_complete(path, partial):
            yield partial
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandFailed(f"{path}: {reason_of(error)}") from error


def line_sink(path: Path, suffix: str) -> Sink:
    """Open a file for lines, with the compression of the suffix."""
    if suffix.endswith(".gz"):
        # Without a name and time in the header, the same records produce the same file.
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=path.open("wb"), mtime=0)
    return _ZstdSink(path) if suffix.endswith(".zst") else path.open("wb")


class _ZstdSink:
    """File of consecutive zstd frames, which any zstd program reads as one stream."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._buffer: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)
        if self._size >= FRAME_SIZE:
            self._write_frame()

    def close(self) -> None:
        self._write_frame()
        self._file.close()

    def _write_frame(self) -> None:
        if self._buffer:
            self._file.write(bytes(cramjam.zstd.compress(b"".join(self._buffer))))
            self._buffer, self._size = [], 0


def read_lines(path: Path, suffix: str, on_read: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the lines of a file, without line ends.

    :param on_read: called with the number of bytes of the file read so far.
    :raise CommandFailed: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            chunks = _frames(file, path) if suffix.endswith(".zst") else _chunks(file, gzipped=suffix.endswith(".gz"))
            unfinished = b""
            for chunk in chunks:
                on_read(file.tell())
                *lines, unfinished = (unfinished + chunk).split(b"\n")
                yield from lines
            if unfinished:
                yield unfinished
    except (OSError, EOFError, zlib.error, cramjam.DecompressionError) as error:
        raise CommandFailed(f"{path}: {reason_of(error)}") from error


def _chunks(file: IO[bytes], *, gzipped: bool) -> Iterator[bytes]:
    source: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if gzipped else file
    while chunk := source.read(READ_SIZE):
        yield chunk


def _frames(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the content of each zstd frame, which is held in memory as a whole."""
    while (start := file.read(4)) == _ZSTD_MAGIC:
        yield bytes(cramjam.zstd.decompress(_read_frame(file, start)))
    if start:
        position = file.tell() - len(start)
        raise CommandFailed(f"{path}: expected a zstd frame at byte {position}")


def _read_frame(file: IO[bytes], start: bytes) -> bytes:
    """Read one compressed frame (RFC 8878, 3.1.1); the headers of its blocks determine its end."""
    frame = io.BytesIO()
    frame.write(start)

    def take(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise EOFError("the last zstd frame is incomplete")
        if frame.tell() + size > FRAME_SIZE_MAX:
            raise EOFError(f"a zstd frame is larger than {FRAME_SIZE_MAX:,} bytes: decompress the file first")
        frame.write(data)
        return data

    descriptor = take(1)[0]
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    take((0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3] + content_size)
    last = False
    while not last:
        header = int.from_bytes(take(3), "little")
        last, block_type, size = bool(header & 1), header >> 1 & 3, header >> 3
        take(1 if block_type == 1 else size)  # a run-length block contains a single byte
    if descriptor >> 2 & 1:
        take(4)
    return frame.getvalue()
