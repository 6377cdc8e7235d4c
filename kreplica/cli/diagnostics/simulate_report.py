"""Text output of ``kreplica simulate``: the history of one storm, or totals of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from kreplica.testing.storms.outcome import Outcome
from kreplica.testing.storms.sweep import Tally

LINE_INTERVAL_S = 30.0
"""Interval between progress lines if standard error is not a terminal."""


def repeat_command(outcome: Outcome, overrides: Mapping[str, str], *, faults: bool = False) -> str:
    """Return the command that repeats a storm.

    :param faults: include ``--faults`` with the numbers of the faults that ran.
    """
    words = ["kreplica simulate", f"--seed {outcome.seed}"]
    words += [f"--option {name}={value}" for name, value in overrides.items()]
    if faults:
        words.append("--faults " + ",".join(str(fault.number) for fault in outcome.plan))
    return " ".join(words)


def describe(outcome: Outcome, overrides: Mapping[str, str]) -> str:
    """Describe one storm: options, planned faults, history and outcome."""
    lines = [f"seed {outcome.seed}: {outcome.options}", "", "planned faults:"]
    lines += [str(fault) for fault in outcome.plan] or ["  none"]
    lines += ["", "history:", *outcome.timeline, "", counts_text(outcome)]
    if outcome.clean:
        lines.append("clean: no record lost or duplicated, and the cluster recovered")
    else:
        lines += ["", outcome.details.rstrip(), "", f"FAILED: {outcome.failure}"]
        lines.append(f"repeat: {repeat_command(outcome, overrides, faults=True)}")
    return "\n".join(lines)


def counts_text(outcome: Outcome) -> str:
    """Return times and counts of one storm."""
    return (
        f"{outcome.virtual_s:.1f} s of virtual time in {outcome.wall_s:.2f} s "
        f"({outcome.virtual_s / outcome.wall_s:.0f} times real time), {outcome.events:,} events, "
        f"{outcome.acknowledged:,} records acknowledged"
    )


def describe_failure(outcome: Outcome, overrides: Mapping[str, str]) -> str:
    """Describe a failed storm in two lines."""
    return f"seed {outcome.seed} FAILED: {outcome.failure}\n  repeat: {repeat_command(outcome, overrides)}"


def describe_tally(tally: Tally, elapsed_s: float, jobs: int, overrides: Mapping[str, str]) -> str:
    """Describe the totals of many storms."""
    hours = tally.virtual_s / 3600
    minutes = max(elapsed_s, 0.001) / 60
    lines = [
        f"{tally.storms:,} storms, {tally.clean:,} clean, {tally.storms - tally.clean:,} failed",
        f"{hours:.2f} simulated hours in {minutes:.2f} minutes with {jobs} jobs: {hours / minutes:.2f} hours per "
        f"minute; one process: {tally.virtual_s / max(tally.busy_s, 0.001):.0f} times real time",
        f"{tally.faults:,} faults, {tally.events:,} events, {tally.acknowledged:,} records acknowledged",
    ]
    if tally.failures:
        lines += ["failed:", *(f"  {repeat_command(each, overrides)}   # {each.failure}" for each in tally.failures)]
    return "\n".join(lines)


class Progress:
    """Progress of a sweep: a bar on a terminal, otherwise a line every ``LINE_INTERVAL_S``.

    :param seeds: all seeds; may be infinite.
    :param seconds_max: maximum duration of the sweep.
    """

    def __init__(self, seeds: Iterable[int], seconds_max: float) -> None:
        self._console = Console(stderr=True)
        self._total = len(seeds) if isinstance(seeds, Sized) else None
        self._seconds_max = seconds_max
        self._started_s = self._printed_s = monotonic()
        self._bar: Bar | None = None
        if self._console.is_terminal:
            columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Bar(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("", total=self._total or seconds_max)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, tally: Tally) -> None:
        """Show the current totals."""
        now_s = monotonic()
        text = f"{tally.storms:,} storms, {tally.storms - tally.clean} failed, {tally.virtual_s / 3600:.2f} hours"
        if self._bar is not None:
            done = tally.storms if self._total is not None else min(now_s - self._started_s, self._seconds_max)
            self._bar.update(self._task, completed=done, description=text)
        elif now_s - self._printed_s >= LINE_INTERVAL_S:
            self._printed_s = now_s
            self.print(text)
