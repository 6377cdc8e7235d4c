"""``kreplica replay``: decide again what a controller decided."""

from __future__ import annotations

from pathlib import Path

import click

from kreplica.runtime.disk import OsDisk
from kreplica.testing.replay import Outcome, Replay
from kreplica.testing.replay_difference import explain
from kreplica.testing.replay_reading import JournalFile, JournalUnreadable, read_journals
from kreplica.testing.replay_story import Story


class Unreadable(click.ClickException):
    """What was given is no journal."""

    exit_code = 2


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--verbose", is_flag=True, help="Tell what the controller saw, decided and did.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Stop after the event of that number.")
def command(path: Path, verbose: bool, until: int | None) -> None:
    """Decide again what a controller decided, from the journal in PATH.

    PATH is a file controller-journal-*.jsonl, or a directory of them (a broker's first log directory).  What the
    controller saw is given to the controller of this program; each of its writes to ZooKeeper and each command to a
    broker is compared.  The first difference is told, and ends with exit code 1.
    """
    try:
        files = read_journals(OsDisk(), str(path), lambda why: click.echo(f"left out: {why}", err=True))
    except JournalUnreadable as error:
        raise Unreadable(str(error)) from None
    events = decisions = 0
    for file, following in zip(files, [*files[1:], None], strict=True):
        if file.note:
            click.echo(file.note, err=True)
        try:
            outcome = _replay(file, following, verbose, until)
        except JournalUnreadable as error:
            raise Unreadable(str(error)) from None
        events += outcome.events
        decisions += outcome.decisions
    click.echo(f"{events} events, {decisions} decisions: all the same")


def _replay(file: JournalFile, following: JournalFile | None, verbose: bool, until: int | None) -> Outcome:
    """:raise SystemExit: where it differs."""
    telling: list[str] = []
    replay = Replay(file, lambda _, line: telling.extend(story.tell(line)), until)
    story = Story(file.head, lambda: replay.controller.context)
    if verbose:
        click.echo(f"{file.path}: broker {file.head['broker']}, kreplica {file.head['kreplica']}")
    for _ in replay.steps():
        if verbose and telling:
            click.echo("\n".join(telling))
        telling.clear()
    if following is not None:
        replay.compare_end(following)
    difference = replay.outcome.difference
    if difference is not None:
        click.echo("\n".join(explain(difference, file, story)))
        raise SystemExit(1)
    return replay.outcome
