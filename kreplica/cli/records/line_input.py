"""Lines of files or of standard input, and pauses in the input, at which buffered records are sent."""

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
    """A line is longer than ``LINE_SIZE_MAX`` bytes."""


def read_lines(descriptor: int, idle_s: float) -> Iterator[bytes | None]:
    """Yield lines without line ends, and None once per pause of at least ``idle_s``.

    :raise LineTooLong: a line exceeds the limit.
    """
    unfinished = b""
    is_paused = False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        if not poll.poll(None if is_paused else idle_s * 1000):
            is_paused = True
            yield None
            continue
        is_paused = False
        data = os.read(descriptor, READ_SIZE)
        if not data:
            break
        *lines, unfinished = (unfinished + data).split(b"\n")
        if len(unfinished) > LINE_SIZE_MAX:
            raise LineTooLong(f"a line is longer than {LINE_SIZE_MAX:,} bytes")
        yield from lines
    if unfinished:
        yield unfinished


def read_files(paths: tuple[Path, ...], idle_s: float) -> Iterator[tuple[str, bytes | None]]:
    """Yield (location, line) for each line of files, or of standard input if no file is given.

    The location is for error messages. A line of None is a pause, see ``read_lines``.
    """
    for path in paths or (STANDARD_INPUT,):
        is_file = path != STANDARD_INPUT
        name = str(path) if is_file else "standard input"
        descriptor = os.open(path, os.O_RDONLY) if is_file else sys.stdin.fileno()
        try:
            number = 0
            for line in read_lines(descriptor, idle_s):
                number += line is not None
                yield f"{name}, line {number}", line
        finally:
            if is_file:
                os.close(descriptor)
