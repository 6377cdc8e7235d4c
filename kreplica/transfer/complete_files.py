"""Files that appear only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_when_complete(path: Path, partial: Path) -> Iterator[None]:
    """Sync ``partial``, which the block writes, to disk, and rename it to ``path``.

    If the block fails, ``partial`` is deleted and ``path`` is unchanged.

    :param partial: in the same directory as ``path``.
    """
    try:
        yield
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
