"""Pieces of outgoing responses: bytes, and file ranges that are sent from the page cache."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

from kreplica.runtime.disk import FileRange
from kreplica.wire.primitives import records_size

Piece = bytes | bytearray | memoryview | FileRange

_LENGTH = Struct(">i")


def framed(pieces: list[Any]) -> tuple[list[Piece], int]:
    """Add the length prefix to a message, and replace each log slice by its file ranges.

    :param pieces: result of ``Schema.build_pieces``; the first is bytes.
    :return: the pieces, and their size in bytes.
    """
    if len(pieces) == 1:
        data = _LENGTH.pack(len(pieces[0])) + pieces[0]
        return [data], len(data)
    size = 0
    out: list[Piece] = []
    for piece in pieces:
        if piece.__class__ is bytes:
            size += len(piece)
            out.append(piece)
        elif (ranges := getattr(piece, "ranges", None)) is not None:
            size += piece.size
            out += [each for each in ranges if each.size]
        else:
            size += records_size(piece)
            out.append(piece)
    out[0] = _LENGTH.pack(size) + pieces[0]
    return out, size + _LENGTH.size


def piece_size(piece: Piece) -> int:
    """Return the size of a piece in bytes."""
    return piece.size if type(piece) is FileRange else len(piece)  # type: ignore[arg-type]


def memory_size(pieces: Iterable[Piece]) -> int:
    """Return the number of bytes in memory; file ranges do not count."""
    return sum(len(piece) for piece in pieces if not isinstance(piece, FileRange))
