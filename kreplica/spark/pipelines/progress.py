"""Progress of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Progress(NamedTuple):
    """Progress since the run started.

    :param activity: current activity, one or two words.
    :param done: completed part of ``total``, in the same unit: offsets, bytes or files.
    :param total: None if unknown.
    :param records: records read, written or compared.
    :param size_bytes: size of these records; 0 if not measured.
    """

    activity: str
    done: int
    total: int | None
    records: int = 0
    size_bytes: int = 0


Report: TypeAlias = Callable[[Progress], None]
"""Receives the progress after each change, in the thread that runs the pipeline."""


def ignore_progress(_: Progress) -> None:
    """Ignore progress."""
