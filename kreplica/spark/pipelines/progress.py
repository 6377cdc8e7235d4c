"""How far a pipeline has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Progress(NamedTuple):
    """Since the run began.

    :param what: is being done, in a word or two.
    :param done: of ``total``, in a unit of the pipeline's own: offsets, bytes, files.
    :param total: None where nobody knows.
    :param records: that were read, written or compared.
    :param size_bytes: of them; 0 where nobody counts.
    """

    what: str
    done: int
    total: int | None
    records: int = 0
    size_bytes: int = 0


Report: TypeAlias = Callable[[Progress], None]
"""Told from the thread that runs the pipeline, as often as something changes."""


def nobody(_: Progress) -> None:
    """To whom nothing need be told."""
