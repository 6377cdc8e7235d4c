"""``kreplica group``: consumer groups and their lag."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.list_options import ListColumn, ListColumns, ListOptions, Row, plain, print_problems
from kreplica.cli.http.session import Session, confirm, path_of, with_session, yes_option
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.screen import Screen, count_text, problem_text, time_text

_GROUP = click.argument("group")


def _status(group: Row) -> object:
    status = group.get("status")
    return None if status is None else problem_text(status, when=status != "OK")


COLUMNS = ListColumns(
    {
        "group": plain("group"),
        "type": plain("type"),
        "protocol_type": plain("protocol_type", "PROTOCOL"),
        "state": plain("state"),
        "coordinator": plain("coordinator"),
        "members": plain("members"),
        "topics": plain("topics"),
        "partitions": plain("partitions"),
        "lag": plain("lag"),
        "lag_without_commit": plain("lag_without_commit", "LAG WITHOUT COMMIT"),
        "partitions_without_commit": plain("partitions_without_commit", "NEVER COMMITTED"),
        "status": ListColumn("STATUS", _status, ("status",)),
        "last_commit_at_ms": ListColumn(
            "LAST COMMIT", lambda row: time_text(row.get("last_commit_at_ms")), ("last_commit_at_ms",)
        ),
    },
    default=(
        "group",
        "type",
        "state",
        "coordinator",
        "members",
        "topics",
        "partitions",
        "lag",
        "partitions_without_commit",
        "status",
    ),
    example="lag>1000,state=Stable",
)

SUBCOMMANDS = {"reset": Subcommand("commands.group_reset", "Set the committed offsets of a group.")}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Consumer groups: members, lag, offsets."""


@command.command("list")
@click.option("--search", metavar="TEXT", help="Only names that contain this text.")
@click.option("--topic", "-t", metavar="TOPIC", help="Only groups that read this topic.")
@COLUMNS.options
@with_session
def list_groups(session: Session, search: str | None, topic: str | None, options: ListOptions) -> None:
    """List all groups of the cluster, with their lag.

    The lag includes all records of partitions without a committed offset; the column NEVER COMMITTED shows the number
    of such partitions.

    \b
    kreplica group list --topic orders --sort -lag --limit 10
    kreplica group list --filter 'status!=OK'
    """
    document = COLUMNS.fetch(session, "/v1/groups", "groups", options, {"search": search, "topic": topic})

    def print_groups(screen: Screen, document: dict[str, Any]) -> None:
        COLUMNS.print(screen, document["groups"], options, empty_text="No groups.")
        print_problems(screen, document)

    session.show(document, print_groups)


@command.command("show")
@_GROUP
@with_session
def show_group(session: Session, group: str) -> None:
    """Show a group, its members and their assigned partitions."""
    session.show(session.get(path_of("groups", group)), _print_group)


def _print_group(screen: Screen, document: dict[str, Any]) -> None:
    screen.pairs(
        [
            ("group", document["group"]),
            ("type", document.get("type")),
            ("protocol", document.get("protocol_type") or None),
            ("state", document["state"]),
            ("coordinator", document.get("coordinator")),
        ]
    )
    screen.line()
    rows = [
        (
            each["member_id"],
            each["client_id"],
            each["client_host"],
            each["instance_id"],
            _assignment_text(each["assignment"]),
        )
        for each in document["members"] or []
    ]
    screen.table(("MEMBER", "CLIENT", "HOST", "INSTANCE", "ASSIGNMENT"), rows, empty_text="No members.")


def _assignment_text(assignment: list[dict[str, Any]] | None) -> str:
    topics = [f"{each['topic']}:{','.join(map(str, each['partitions']))}" for each in assignment or []]
    return " ".join(topics) or "nothing"


@command.command()
@_GROUP
@with_session
def lag(session: Session, group: str) -> None:
    """Show the lag and status (OK, WARN, STALLED or STOPPED) of a group, in total and by partition.

    The lag includes all records of partitions without a committed offset.
    """
    session.show(session.get(path_of("groups", group, "lag")), _print_lag)


def _print_lag(screen: Screen, document: dict[str, Any]) -> None:
    status = document["status"]
    screen.pairs(
        [
            ("group", document["group"]),
            ("state", document["state"]),
            ("lag", "unknown" if document["lag"] is None else count_text(document["lag"], "record")),
            ("never committed", _never_committed(document)),
            ("status", problem_text(status, when=status != "OK")),
            ("no commit since", _no_commit_since(document)),
        ]
    )
    screen.line()
    columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "STATUS", "LAST COMMIT")
    rows = [
        (
            each["topic"],
            each["partition"],
            "never" if each["committed_offset"] is None else each["committed_offset"],
            each["log_end_offset"],
            each["lag"],
            _status(each),
            time_text(each["committed_at_ms"]),
        )
        for each in document["partitions"]
    ]
    screen.table(columns, rows, empty_text="No committed offsets.")


def _no_commit_since(document: dict[str, Any]) -> str | None:
    since_ms = document.get("no_commit_since_ms")
    return None if since_ms is None else time_text(since_ms)


def _never_committed(document: dict[str, Any]) -> str | None:
    count = document.get("partitions_without_commit")
    if not count:
        return None
    return f"{count_text(count, 'partition')} with {count_text(document['lag_without_commit'], 'record')}"


@command.command()
@_GROUP
@yes_option
@click.option("--dry-run", is_flag=True, help="Only check whether the group can be deleted.")
@with_session
def delete(session: Session, group: str, yes: bool, dry_run: bool) -> None:
    """Delete a group and its offsets; the group must have no members."""
    if not dry_run:
        confirm(f"Delete group {group} and its offsets?", yes=yes, session=session)
    document = session.send("DELETE", path_of("groups", group), query={"dry_run": dry_run})
    session.show(document, lambda screen, _: screen.line(
        f"Nothing was changed (--dry-run): group {group} can be deleted." if dry_run else f"Group {group} was deleted."
    ))  # fmt: skip
