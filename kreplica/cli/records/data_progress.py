"""Progress of a copy: records, bytes and rates, shown as a bar on a terminal."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Self

from kreplica.cli.terminal.progress_bar import ProgressBar
from kreplica.cli.terminal.screen import bytes_text


def records_text(count: int) -> str:
    """Return a number of records with its unit: ``1 record``, ``1,000 records``."""
    return f"{count:,} record{'' if count == 1 else 's'}"


class CopyProgress:
    """Counts records and bytes, and shows a progress bar while used as a context manager.

    :param description: the activity, one or two words.
    :param total: value of ``done`` at the end; None if unknown.
    """

    def __init__(self, description: str, total: int | None) -> None:
        self.records = 0
        self.size_bytes = 0
        self._started_s = monotonic()
        self._bar = ProgressBar(description, total)

    def set_total(self, total: int) -> None:
        """Set a total that was not known at first."""
        self._bar.set_total(total)

    def add(self, records: int, size_bytes: int, done: int) -> None:
        """Count records.

        :param done: completed part of the total, in the same unit.
        """
        self.records += records
        self.size_bytes += size_bytes
        self._bar.update(done, self._rates)

    def _rates(self) -> str:
        seconds = max(monotonic() - self._started_s, 1e-3)
        return f"{self.records / seconds:,.0f} records/s, {bytes_text(self.size_bytes / seconds)}/s"

    @property
    def summary(self) -> str:
        """Return records, bytes, elapsed time and rates as text."""
        seconds = monotonic() - self._started_s
        return f"{records_text(self.records)}, {bytes_text(self.size_bytes)}, in {seconds:.1f} s ({self._rates()})"

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, traceback)
