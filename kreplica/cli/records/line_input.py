"""Lines of a file, and moments when there are none yet: who types, or pipes slowly, is not kept waiting."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path

READ_SIZE = 1 << 18
LINE_SIZE_MAX = 64 << 20
STANDARD_INPUT = Path("-")


class LineTooLong(Exception):
    """No line ends within ``LINE_SIZE_MAX`` bytes."""


def lines_of(descriptor: int, idle_s: float) -> Iterator[bytes | None]:
    """Lines without their ends; None whenever nothing came for a while (once, until something comes).

    :param idle_s: how long that while is.
    :raise LineTooLong: one is.
    """
    held = b""
    told = False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        if not poll.poll(None if told else idle_s * 1000):
            told = True
            yield None
            continue
        told = False
        data = os.read(descriptor, READ_SIZE)
        if not data:
            break
        *whole, held = (held + data).split(b"\n")
        if len(held) > LINE_SIZE_MAX:
            raise LineTooLong(f"a line of more than {LINE_SIZE_MAX:,} bytes")
        yield from whole
    if held:
        yield held


def lines_of_files(paths: tuple[Path, ...], idle_s: float) -> Iterator[tuple[str, bytes | None]]:
    """(where, line) of each line of some files, or of standard input where none is named; ``where`` is for errors."""
    for path in paths or (STANDARD_INPUT,):
        is_file = path != STANDARD_INPUT
        name = str(path) if is_file else "standard input"
        descriptor = os.open(path, os.O_RDONLY) if is_file else sys.stdin.fileno()
        try:
            number = 0
            for line in lines_of(descriptor, idle_s):
                number += line is not None
                yield f"{name}, line {number}", line
        finally:
            if is_file:
                os.close(descriptor)
