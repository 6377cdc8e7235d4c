"""``kreplica group reset``: set the committed offsets of a group."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.session import Session, path_of, with_session
from kreplica.cli.terminal.parameter_types import Duration, Partitions, Time, partitions_by_topic
from kreplica.cli.terminal.screen import Screen


@click.command()
@click.argument("group")
@click.option("--earliest", is_flag=True, help="Reset to the log start offset.")
@click.option("--latest", is_flag=True, help="Reset to the log end offset: only new records are read.")
@click.option(
    "--time", "timestamp", type=Time(), metavar="TIME", help="Reset to the first record at or after this time."
)
@click.option(
    "--duration",
    type=Duration(),
    metavar="DURATION",
    help="Reset to the first record within the last DURATION, for example 2h30m.",
)
@click.option("--shift", type=int, metavar="N", help="Move forward by N offsets; backward if negative, such as -100.")
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Reset to this offset.")
@click.option("--topic", "-t", "topics", multiple=True, type=Partitions(), metavar="TOPIC[:0,1,4-7]",
              help="Only this topic, or these partitions of it; may be repeated. By default, all topics for which "
              "the group has committed offsets.")  # fmt: skip
@click.option("--execute/--dry-run", default=False, help="Commit the new offsets, or only show them (the default).")
@with_session
def command(
    session: Session, group: str, topics: tuple[tuple[str, list[int] | None], ...], execute: bool, **targets: Any
) -> None:
    """Set the committed offsets of a group without active members.

    Nothing is changed without --execute. Without --topic, all partitions of the topics for which the group has
    committed offsets are reset, including partitions without a committed offset; --shift moves only partitions that
    have one.

    \b
    kreplica group reset kitchen --earliest
    kreplica group reset kitchen --time 2027-01-31T08:30 --topic orders --execute
    kreplica group reset kitchen --shift -100 --topic orders:0,1 --execute
    """
    body: dict[str, Any] = {"to": _target(targets)}
    if topics:
        body["topics"] = partitions_by_topic(topics)
    path = path_of("groups", group, "offsets")
    session.show(session.send("POST", path, body, query={"dry_run": not execute}), _print_offsets)


def _target(targets: dict[str, Any]) -> dict[str, Any]:
    targets_given = {name: value for name, value in targets.items() if value is not None and value is not False}
    if len(targets_given) != 1:
        raise click.UsageError("specify exactly one of --earliest, --latest, --time, --duration, --shift, --offset")
    ((kind, value),) = targets_given.items()
    return {"kind": kind} if value is True else {"kind": kind, "value": value}


def _print_offsets(screen: Screen, document: dict[str, Any]) -> None:
    columns = ("TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE")
    rows = [
        (each["topic"], each["partition"], each["before"], each["after"], _offset_change(each))
        for each in document["offsets"]
    ]
    screen.table(columns, rows, empty_text="No offsets to reset.")
    if document["dry_run"]:
        screen.line("Nothing was changed.  Use --execute to commit these offsets.", "bold")
    else:
        screen.line(f"The new offsets of group {document['group']} were committed.")


def _offset_change(offset: dict[str, Any]) -> int | None:
    before, after = offset["before"], offset["after"]
    return None if before is None or after is None else after - before
