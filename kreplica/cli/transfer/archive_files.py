"""Files that hold a topic's records: lines, plain or compressed; a file takes its name only when it is whole."""

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

from kreplica.cli.http.session import Failed

FRAME_SIZE = 4 << 20
"""Bytes of lines in one zstd frame: frames are compressed, and read, one by one."""

FRAME_SIZE_MAX = 256 << 20
READ_SIZE = 1 << 18
LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PARQUET = ".parquet"

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Sink(Protocol):
    """Takes lines."""

    def write(self, data: bytes) -> object: ...

    def close(self) -> None: ...


def kind_of(path: Path) -> str:
    """Which of ``LINES``, or ``PARQUET``, a file's name says it is.

    :raise Failed: none of them.
    """
    for kind in (*LINES, PARQUET):
        if path.name.endswith(kind):
            return kind
    raise Failed(f"{path}: what kind of file is that? {', '.join(LINES)} or {PARQUET} is expected")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A file beside it to write to, which takes the name when all went well, and else is removed.

    :raise Failed: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        descriptor = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(path)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise Failed(f"{path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def line_sink(path: Path, kind: str) -> Sink:
    """Writes lines in the kind's compression."""
    if kind.endswith(".gz"):
        # Without a name or a time of its own: the same records are the same file.
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=path.open("wb"), mtime=0)
    return _ZstdSink(path) if kind.endswith(".zst") else path.open("wb")


class _ZstdSink:
    """Frame after frame, which any zstd program reads as one file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        if self._size >= FRAME_SIZE:
            self._write_frame()

    def close(self) -> None:
        self._write_frame()
        self._file.close()

    def _write_frame(self) -> None:
        if self._held:
            self._file.write(bytes(cramjam.zstd.compress(b"".join(self._held))))
            self._held, self._size = [], 0


def read_lines(path: Path, kind: str, passed: Callable[[int], None]) -> Iterator[bytes]:
    """The lines of a file, without their ends.

    :param passed: is told how many bytes of the file have been read.
    :raise Failed: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            pieces = _frames(file, path) if kind.endswith(".zst") else _pieces(file, gzipped=kind.endswith(".gz"))
            held = b""
            for piece in pieces:
                passed(file.tell())
                *whole, held = (held + piece).split(b"\n")
                yield from whole
            if held:
                yield held
    except (OSError, EOFError, zlib.error, cramjam.DecompressionError) as error:
        raise Failed(f"{path}: {error}") from error


def _pieces(file: IO[bytes], *, gzipped: bool) -> Iterator[bytes]:
    source: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if gzipped else file
    while piece := source.read(READ_SIZE):
        yield piece


def _frames(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Decompresses frame by frame: what comes out of one is in memory as a whole."""
    while (start := file.read(4)) == _ZSTD_MAGIC:
        yield bytes(cramjam.zstd.decompress(_read_frame(file, start)))
    if start:
        raise Failed(f"{path}: no zstd frame where one begins")


def _read_frame(file: IO[bytes], start: bytes) -> bytes:
    """One frame as it lies there (RFC 8878, 3.1.1): its end is known by its blocks' headers."""
    frame = io.BytesIO()
    frame.write(start)

    def take(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise EOFError("the last zstd frame is cut short")
        if frame.tell() + size > FRAME_SIZE_MAX:
            raise EOFError(f"a zstd frame of more than {FRAME_SIZE_MAX:,} bytes: decompress the file first")
        frame.write(data)
        return data

    descriptor = take(1)[0]
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    take((0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3] + content_size)
    last = False
    while not last:
        header = int.from_bytes(take(3), "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        take(1 if kind == 1 else size)  # a block of one byte, so many times
    if descriptor >> 2 & 1:
        take(4)
    return frame.getvalue()
