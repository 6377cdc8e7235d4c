"""A bar for whoever watches a copy: how much of the offsets is done, records and bytes a second."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from kreplica.cli.terminal.screen import bytes_text

UPDATE_S_MIN = 0.1


def records_text(count: int) -> str:
    """``1 record``, ``1,000 records``."""
    return f"{count:,} record{'' if count == 1 else 's'}"


class CopyProgress:
    """Shown on a terminal only; counts in any case.

    :param what: is done, in a word or two.
    :param total: of ``done``; None where nobody knows.
    """

    def __init__(self, what: str, total: int | None) -> None:
        self.records = 0
        self.size_bytes = 0
        self._began_s = self._updated_s = monotonic()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        told = TextColumn("{task.fields[told]}")
        self._bar = Progress(*columns, told, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(what, total=total, told="")

    def expect(self, total: int) -> None:
        """Say how much ``done`` is to become."""
        self._bar.update(self._task, total=total)

    def add(self, records: int, size_bytes: int, done: int) -> None:
        """Count some more.

        :param done: of the total, until now.
        """
        self.records += records
        self.size_bytes += size_bytes
        now_s = monotonic()
        if now_s - self._updated_s >= UPDATE_S_MIN:
            self._updated_s = now_s
            self._bar.update(self._task, completed=done, told=self.rates)

    @property
    def rates(self) -> str:
        """Records and bytes a second since the beginning."""
        seconds = max(monotonic() - self._began_s, 1e-3)
        return f"{self.records / seconds:,.0f} records/s, {bytes_text(self.size_bytes / seconds)}/s"

    @property
    def summary(self) -> str:
        """What was done, in how long."""
        seconds = monotonic() - self._began_s
        return f"{records_text(self.records)}, {bytes_text(self.size_bytes)}, in {seconds:.1f} s ({self.rates})"

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()
