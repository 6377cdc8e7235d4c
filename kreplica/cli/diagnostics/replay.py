"""``kreplica replay``: decide again what a controller decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kreplica.cli.terminal.screen import plain
from kreplica.runtime.disk import ReadOnlyDisk
from kreplica.testing.replay.difference import explain
from kreplica.testing.replay.entry_text import EntryText
from kreplica.testing.replay.reading import JournalFile, JournalUnreadable, read_journals
from kreplica.testing.replay.replay import Outcome, Replay
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.sweep import disable_logging


class Unreadable(click.ClickException):
    """What was given is no journal."""

    exit_code = 2


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--verbose", is_flag=True, help="Print the controller's events, decisions and effects.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Stop after event N.")
def command(path: Path, verbose: bool, until: int | None) -> None:
    """Decide again what a controller decided, from the journal in PATH.

    PATH is a file controller-journal-*.jsonl, or a directory of them (a broker's first log directory).  What the
    controller saw is given to the controller of this program; each of its writes to ZooKeeper and each command to a
    broker is compared.  The first difference is told, and ends with exit code 1.
    """
    disable_logging()  # a controller logs what goes wrong in it, and here all of that is compared
    try:
        with deferred_collection():
            events, decisions = _replay_all(path, verbose, until)
    except JournalUnreadable as error:
        raise Unreadable(plain(str(error))) from None
    click.echo(f"{events} events, {decisions} decisions: all identical")


def _replay_all(path: Path, verbose: bool, until: int | None) -> tuple[int, int]:
    """Return the events and the decisions that were compared.

    :raise JournalUnreadable: a file, or a line in it, is not what controllers write.
    :raise SystemExit: the first difference was found.
    """
    files = read_journals(ReadOnlyDisk(), str(path), lambda why: click.echo(plain(f"skipped: {why}"), err=True))
    events = decisions = 0
    for file, following in zip(files, [*files[1:], None], strict=True):
        if file.note:
            click.echo(plain(file.note), err=True)
        outcome = _replay(file, following, verbose, until)
        events += outcome.events
        decisions += outcome.decisions
    return events, decisions


def _replay(file: JournalFile, following: JournalFile | None, verbose: bool, until: int | None) -> Outcome:
    """:raise SystemExit: where it differs."""
    telling: list[str] = []
    replay = Replay(file, lambda _, line: telling.extend(entry_text.lines(line)), until)
    with replay.errors_as_unreadable(file.head):
        entry_text = EntryText(file.head, lambda: replay.controller.context)
    if verbose:
        _echo([f"{file.path}: broker {file.head['broker']}, kreplica {file.head['kreplica']}"])
    for _ in replay.steps():
        if verbose and telling:
            _echo(telling)
        telling.clear()
    if following is not None:
        replay.compare_end(following)
    difference = replay.outcome.difference
    if difference is not None:
        with replay.errors_as_unreadable(difference.expected or file.head):
            explained = list(explain(difference, file, entry_text))
        _echo(explained)
        raise SystemExit(1)
    return replay.outcome


def _echo(lines: Sequence[str]) -> None:
    """Print lines without control characters: a journal may hold anything."""
    click.echo("\n".join(map(plain, lines)))
