"""``kreplica replay``: repeat a controller's decisions from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kreplica.cli.terminal.screen import echo, escape_controls
from kreplica.runtime.os_disk import ReadOnlyDisk
from kreplica.testing.replay.difference import explain
from kreplica.testing.replay.entry_text import EntryText
from kreplica.testing.replay.reading import JournalFile, JournalUnreadable, read_journals
from kreplica.testing.replay.replay import Outcome, Replay
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.sweep import disable_logging


class UnreadableJournal(click.ClickException):
    """A file is not a controller journal."""

    exit_code = 2


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--verbose", is_flag=True, help="Print the controller's events, decisions and effects.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Stop after event N.")
def command(path: Path, verbose: bool, until: int | None) -> None:
    """Replay the controller's journal in PATH and compare its decisions.

    PATH is a controller-journal-*.jsonl file, or a directory that contains such files (a broker's first log directory).
    The recorded inputs are replayed through the controller code of this version, and each of its writes to ZooKeeper
    and commands to brokers is compared with the journal.  If they differ, the command prints the first difference and
    exits with status 1.
    """
    disable_logging()  # the controller's log messages would hide the differences
    try:
        with deferred_collection():
            events, decisions = _replay_all(path, verbose, until)
    except JournalUnreadable as error:
        raise UnreadableJournal(escape_controls(str(error))) from None
    click.echo(f"{events} events, {decisions} decisions: all identical")


def _replay_all(path: Path, verbose: bool, until: int | None) -> tuple[int, int]:
    """Return the numbers of compared events and decisions.

    :raise JournalUnreadable: a file, or a line in it, does not have the format of a journal.
    :raise SystemExit: the first difference was found.
    """
    files = read_journals(ReadOnlyDisk(), str(path), lambda reason: echo(f"skipped: {reason}", err=True))
    events = decisions = 0
    for file, next_file in zip(files, [*files[1:], None], strict=True):
        if file.note:
            echo(file.note, err=True)
        outcome = _replay(file, next_file, verbose, until)
        events += outcome.events
        decisions += outcome.decisions
    return events, decisions


def _replay(file: JournalFile, next_file: JournalFile | None, verbose: bool, until: int | None) -> Outcome:
    """Replay one file.

    :raise SystemExit: a difference was found.
    """
    lines: list[str] = []
    replay = Replay(file, lambda _, line: lines.extend(entry_text.lines(line)), until)
    with replay.errors_as_unreadable(file.head):
        entry_text = EntryText(file.head, lambda: replay.controller.context)
    if verbose:
        _echo([f"{file.path}: broker {file.head['broker']}, kreplica {file.head['kreplica']}"])
    for _ in replay.steps():
        if verbose and lines:
            _echo(lines)
        lines.clear()
    if next_file is not None:
        replay.compare_end(next_file)
    difference = replay.outcome.difference
    if difference is not None:
        with replay.errors_as_unreadable(difference.expected or file.head):
            explanation = list(explain(difference, file, entry_text))
        _echo(explanation)
        raise SystemExit(1)
    return replay.outcome


def _echo(lines: Sequence[str]) -> None:
    """Print lines with control characters escaped: the content of a journal is not trusted."""
    click.echo("\n".join(map(escape_controls, lines)))
