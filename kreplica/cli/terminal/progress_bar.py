"""Progress bar on standard error."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

UPDATE_S_MIN = 0.1


class ProgressBar:
    """Progress bar with a text beside it, used as a context manager; drawn only on a terminal.

    :param total: value of ``completed`` at the end; None if unknown.
    :ivar is_drawn: True if standard error is a terminal.
    """

    def __init__(self, description: str = "", total: int | None = None) -> None:
        console = Console(stderr=True)
        self.is_drawn = console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        text = TextColumn("{task.fields[text]}")
        self._bar = Progress(*columns, text, console=console, transient=True, disable=not self.is_drawn)
        self._task = self._bar.add_task(description, total=total, text="")
        self._updated_s = monotonic()

    def set_total(self, total: int) -> None:
        """Set a total that was not known at first."""
        self._bar.update(self._task, total=total)

    def update(
        self, completed: int, text: Callable[[], str], *, description: str | None = None, total: int | None = None
    ) -> None:
        """Show the progress, at most once per ``UPDATE_S_MIN``.

        :param text: returns the text beside the bar; called only if it is drawn.
        :param description: None leaves it unchanged; the same holds for ``total``.
        """
        now_s = monotonic()
        if now_s - self._updated_s >= UPDATE_S_MIN:
            self._updated_s = now_s
            self._bar.update(self._task, completed=completed, text=text(), description=description, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()
