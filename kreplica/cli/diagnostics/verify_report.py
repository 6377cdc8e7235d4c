"""Text output of ``kreplica verify``: progress line and result."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kreplica.testing.anomalies import MEANINGS, AnomalyReport
from kreplica.testing.verification.verdict import Verdict
from kreplica.testing.verification.verification import Progress

LINE_INTERVAL_S = 5.0
EXAMPLES_SHOWN = 5

WIDE_COLUMNS = 120
"""Minimum terminal width at which every kind of anomaly is explained, not only those that were found."""


class ProgressLine:
    """Progress as one updated line on a terminal; otherwise a new line per phase and every ``LINE_INTERVAL_S``."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None
        self._phase = ""
        self._next_s = 0.0

    def show(self, progress: Progress) -> None:
        """Show the current progress."""
        if self._live is not None:
            self._live.update(Text(progress_text(progress), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif progress.phase != self._phase or progress.at_s >= self._next_s:
            self._phase, self._next_s = progress.phase, progress.at_s + LINE_INTERVAL_S
            self._screen.print(progress_text(progress), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def progress_text(progress: Progress) -> str:
    """Format the progress as one line."""
    return (
        f"{progress.at_s:5.0f} s  {progress.phase}: {progress.acknowledged:,} of {progress.sent:,} acknowledged, "
        f"{progress.unread:,} unread, longest pause {progress.silence_s:.1f} s, {progress.errors:,} errors"
    )


def describe(verdict: Verdict, out: Console) -> None:
    """Print the result of a verification."""
    for line in _count_lines(verdict):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print()
    out.print(_table(verdict.report, with_all_meanings=out.width >= WIDE_COLUMNS))
    for line in _example_lines(verdict.report):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print()
    out.print(_verdict_text(verdict), soft_wrap=True)


def _count_lines(verdict: Verdict) -> list[str]:
    setup, latency = verdict.setup, verdict.latency_ms
    megabytes_per_s = verdict.acknowledged_bytes / verdict.load_s / 1e6 if verdict.load_s else 0.0
    lines = [
        f"topic {setup.topic}: {setup.partitions} partitions, {setup.replication_factor} replicas on "
        f"{setup.brokers} brokers, min.insync.replicas={setup.min_in_sync}, acks={setup.acks_text}",
        f"{verdict.acknowledged:,} of {verdict.sent:,} records acknowledged in {verdict.load_s:.0f} s "
        f"({verdict.records_per_s:,.0f}/s, {megabytes_per_s:.2f} MB/s), {verdict.read:,} read",
        f"acknowledgement latency {latency['p50']:,.1f} ms (p50), {latency['p99']:,.1f} ms (p99), "
        f"{latency['max']:,.1f} ms (max); longest pause {verdict.longest_silence_s:.2f} s",
    ]
    if verdict.errors:
        errors = ", ".join(f"{name} {count:,}" for name, count in verdict.errors.items())
        lines.append(f"errors that clients retried: {errors}")
    if verdict.producer_restarts:
        lines.append(f"producer IDs replaced (their records were unknown to a broker): {verdict.producer_restarts:,}")
    if verdict.reader_restarts:
        lines.append(f"reader positions reset because they were beyond the log end: {verdict.reader_restarts:,}")
    if verdict.deletion_error:
        lines.append(verdict.deletion_error)
    return lines


def _table(report: AnomalyReport, *, with_all_meanings: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("anomaly", no_wrap=True)
    table.add_column("found", justify="right")
    table.add_column("severity", no_wrap=True)
    table.add_column("meaning")
    for row in report.rows:
        style = "" if not row.count else "bold red" if row.is_error else "yellow"
        severity = "error" if row.is_error else "noteworthy"
        meaning = MEANINGS[row.kind] if row.count or with_all_meanings else ""
        table.add_row(row.kind.value, f"{row.count:,}", severity, meaning, style=style)
    return table


def _example_lines(report: AnomalyReport) -> list[str]:
    lines = []
    for row in report.rows:
        examples = report.examples[row.kind][:EXAMPLES_SHOWN]
        lines += [str(anomaly) for anomaly in examples]
        if row.count > len(examples):
            lines.append(f"{'':14}and {row.count - len(examples):,} more of this kind")
    return ["", *lines] if lines else []


def _verdict_text(verdict: Verdict) -> Text:
    violations = [f"{count:,} x {kind.value}" for kind, count in verdict.report.errors.items()]
    if verdict.acknowledged < verdict.sent:
        violations.append(f"{verdict.sent - verdict.acknowledged:,} records were never acknowledged")
    elif not verdict.settled:
        violations.append("not every reader reached the end")
    if violations:
        return Text("VIOLATED: " + "; ".join(violations), style="bold red")
    if verdict.report.counts:
        return Text(f"clean: the guarantees of acks={verdict.setup.acks_text} held", style="bold green")
    return Text("clean: every acknowledged record was read once, unchanged and in order", style="bold green")
