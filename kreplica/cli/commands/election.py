"""``kreplica election``: manual leader elections."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.list_options import limit_option
from kreplica.cli.http.session import PAGE, Session, confirm, dry_run_option, with_session, yes_option
from kreplica.cli.terminal.parameter_types import Partition
from kreplica.cli.terminal.screen import Screen, count_text, problem_text

_PARTITIONS = click.argument("partitions", nargs=-1, type=Partition(), metavar="[TOPIC:PARTITION]...")


@click.group()
def command() -> None:
    """Elect partition leaders."""


@command.command("list")
@limit_option
@with_session
def list_elections(session: Session, limit: int | None) -> None:
    """List partitions that need an election.

    These are partitions whose leader is not the preferred replica, and offline partitions with a live replica.
    """
    query = PAGE if limit is None else {"limit": min(limit, PAGE["limit"])}
    session.show(session.get("/v1/elections", query), _print_needed)


def _print_needed(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (each["topic"], each["partition"], each["type"], each["leader"], each["replicas"])
        for each in document["needed"]
    ]
    screen.table(("TOPIC", "PARTITION", "ELECTION", "LEADER", "REPLICAS"), rows, empty_text="No elections are needed.")
    if document["pending"]:
        screen.line(f"{count_text(len(document['pending']), 'preferred leader election')} in progress.")


@command.command(short_help="Elect the preferred replicas as leaders.")
@_PARTITIONS
@dry_run_option
@with_session
def preferred(session: Session, partitions: tuple[tuple[str, int], ...], dry_run: bool) -> None:
    """Elect the preferred (first) replica of the given partitions as leader; by default, of all partitions."""
    _elect(session, "preferred", partitions, dry_run=dry_run)


@command.command()
@_PARTITIONS
@yes_option
@dry_run_option
@with_session
def unclean(session: Session, partitions: tuple[tuple[str, int], ...], yes: bool, dry_run: bool) -> None:
    """Elect any live replica of offline partitions as leader.  LOSES RECORDS.

    Records that exist only on dead replicas are lost.
    """
    if not partitions:
        raise click.UsageError("specify partitions; `kreplica partition list --offline` lists those without a leader")
    if not dry_run:
        confirm("Records that exist only on dead brokers will be lost.  Continue?", yes=yes, session=session)
    _elect(session, "unclean", partitions, dry_run=dry_run)


def _elect(session: Session, kind: str, partitions: tuple[tuple[str, int], ...], *, dry_run: bool) -> None:
    requested = [{"topic": topic, "partition": number} for topic, number in partitions]
    document = session.send("POST", "/v1/elections", {"type": kind, "partitions": requested or None},
                            query={"dry_run": dry_run})  # fmt: skip
    session.show_write(document, _print_results)
    if any(each["error"] for each in document["partitions"]):
        raise SystemExit(1)


def _print_results(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (each["topic"], each["partition"], each["leader"], problem_text(each["error"] or ""))
        for each in document["partitions"]
    ]
    screen.table(("TOPIC", "PARTITION", "LEADER", ""), rows, empty_text="No partitions need an election.")
