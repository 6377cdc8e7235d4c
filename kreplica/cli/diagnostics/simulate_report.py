"""What ``kreplica simulate`` says of storms: a story for one, a few figures for many."""

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

SAY_EVERY_S = 30.0
"""Where nobody watches, a line so often is enough."""


def repetition(outcome: Outcome, chosen: Mapping[str, str], *, faults: bool = False) -> str:
    """The command that runs the storm again.

    :param faults: whether to name the faults that it had.
    """
    words = ["kreplica simulate", f"--seed {outcome.seed}"]
    words += [f"--option {name}={value}" for name, value in chosen.items()]
    if faults:
        words.append("--faults " + ",".join(str(fault.number) for fault in outcome.plan))
    return " ".join(words)


def describe(outcome: Outcome, chosen: Mapping[str, str]) -> str:
    """All of one storm: its circumstances, what was to happen, what did, how it ended."""
    lines = [f"seed {outcome.seed}: {outcome.options}", "", "the plan:"]
    lines += [str(fault) for fault in outcome.plan] or ["  nothing"]
    lines += ["", "what was done:", *outcome.timeline, "", figures(outcome)]
    if outcome.clean:
        lines.append("clean: nothing lost, nothing twice, everything came back")
    else:
        lines += ["", outcome.details.rstrip(), "", f"FAILED: {outcome.failure}"]
        lines.append(f"again: {repetition(outcome, chosen, faults=True)}")
    return "\n".join(lines)


def figures(outcome: Outcome) -> str:
    """What one storm took."""
    return (
        f"{outcome.virtual_s:.1f} s of virtual time in {outcome.wall_s:.2f} s "
        f"({outcome.virtual_s / outcome.wall_s:.0f} times real time), {outcome.events:,} events, "
        f"{outcome.acknowledged:,} records acknowledged"
    )


def describe_failure(outcome: Outcome, chosen: Mapping[str, str]) -> str:
    """One failed storm among many."""
    return f"seed {outcome.seed} FAILED: {outcome.failure}\n  again: {repetition(outcome, chosen)}"


def describe_tally(tally: Tally, elapsed_s: float, jobs: int, chosen: Mapping[str, str]) -> str:
    """What many storms came to."""
    hours = tally.virtual_s / 3600
    minutes = max(elapsed_s, 0.001) / 60
    lines = [
        f"{tally.storms:,} storms, {tally.clean:,} clean, {tally.storms - tally.clean:,} failed",
        f"{hours:.2f} simulated hours in {minutes:.2f} minutes with {jobs} at once: {hours / minutes:.2f} hours per "
        f"minute; one process: {tally.virtual_s / max(tally.busy_s, 0.001):.0f} times real time",
        f"{tally.faults:,} faults, {tally.events:,} events, {tally.acknowledged:,} records acknowledged",
    ]
    if tally.failures:
        lines += ["failed:", *(f"  {repetition(each, chosen)}   # {each.failure}" for each in tally.failures)]
    return "\n".join(lines)


class Progress:
    """How far a sweep is: a bar on a terminal, a line now and then elsewhere.

    :param seeds: all of them, or an endless row of them.
    :param seconds_max: how long it takes at most.
    """

    def __init__(self, seeds: Iterable[int], seconds_max: float) -> None:
        self._console = Console(stderr=True)
        self._total = len(seeds) if isinstance(seeds, Sized) else None
        self._seconds_max = seconds_max
        self._began_s = self._said_s = monotonic()
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

    def say(self, text: str) -> None:
        """Print something that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, tally: Tally) -> None:
        """Show how far it is."""
        now_s = monotonic()
        text = f"{tally.storms:,} storms, {tally.storms - tally.clean} failed, {tally.virtual_s / 3600:.2f} hours"
        if self._bar is not None:
            done = tally.storms if self._total is not None else min(now_s - self._began_s, self._seconds_max)
            self._bar.update(self._task, completed=done, description=text)
        elif now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            self.say(text)
