"""``kreplica topic delete-records``: delete the oldest records of a topic."""

from __future__ import annotations

import time
from typing import Any

import click

from kreplica.cli.http.session import Session, confirm, path_of, with_session, yes_option
from kreplica.cli.terminal.parameter_types import Duration, Time
from kreplica.cli.terminal.screen import Screen, count_text


@click.command()
@click.argument("topic")
@click.option("--all", "everything", is_flag=True, help="Delete all records.")
@click.option("--time", "time_ms", type=Time(), metavar="TIME", help="Delete records before this time.")
@click.option("--older-than", "age_ms", type=Duration(), metavar="DURATION",
              help="Delete records older than DURATION, for example 2h30m.")  # fmt: skip
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Delete records before this offset.")
@click.option("--partition", "-p", type=click.IntRange(min=0), metavar="N", help="Only this partition.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show which records would be deleted.")
@with_session
def command(
    session: Session,
    topic: str,
    everything: bool,
    time_ms: int | None,
    age_ms: int | None,
    offset: int | None,
    partition: int | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete the oldest records of a topic, on all replicas.

    The topic and its settings are kept, and offsets are not reused.  A topic whose cleanup.policy is only compact is
    rejected.

    \b
    kreplica topic delete-records orders --all
    kreplica topic delete-records orders --older-than 7d --dry-run
    kreplica topic delete-records orders --partition 2 --offset 1000 --yes
    """
    before = _position(everything=everything, time_ms=time_ms, age_ms=age_ms, offset=offset)
    if not dry_run:
        confirm(f"Delete records of topic {topic}?", yes=yes, session=session)
    query = {"before": before, "partition": partition, "dry_run": dry_run}
    document = session.send("DELETE", path_of("topics", topic, "messages"), query=query)
    session.show(document, _print_deleted)


def _position(*, everything: bool, time_ms: int | None, age_ms: int | None, offset: int | None) -> str:
    positions = []
    if everything:
        positions.append("latest")
    if time_ms is not None:
        positions.append(f"timestamp:{time_ms}")
    if age_ms is not None:
        positions.append(f"timestamp:{max(int(time.time() * 1000) - age_ms, 0)}")
    if offset is not None:
        positions.append(f"offset:{offset}")
    if len(positions) != 1:
        raise click.UsageError("specify exactly one of --all, --time, --older-than, --offset")
    return positions[0]


def _print_deleted(screen: Screen, document: dict[str, Any]) -> None:
    rows = [(each["partition"], each["before"], each["after"], _count(each)) for each in document["partitions"]]
    screen.table(("PARTITION", "START BEFORE", "START AFTER", "OFFSETS DELETED"), rows, empty_text="No partitions.")
    total = count_text(sum(map(_count, document["partitions"])), "offset")
    if document["dry_run"]:
        screen.line(f"Nothing was changed (--dry-run): {total} would be deleted from {document['topic']}.", "bold")
    else:
        screen.line(f"Deleted {total} from {document['topic']}.")


def _count(row: dict[str, Any]) -> int:
    deleted: int = max(row["after"] - row["before"], 0)
    return deleted
