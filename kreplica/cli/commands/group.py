"""``kreplica group``: consumer groups and their lag."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.session import PAGE, Session, confirm, path_of, with_session, yes_option
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.screen import Screen, count_text, problem_text, time_text

_GROUP = click.argument("group")


SUBCOMMANDS = {"reset": Subcommand("commands.group_reset", "Set the committed offsets of a group.")}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Consumer groups: members, lag, offsets."""


@command.command("list")
@click.option("--search", metavar="TEXT", help="Only names that contain this text.")
@with_session
def list_groups(session: Session, search: str | None) -> None:
    """List all groups of the cluster."""
    session.show(session.get_all("/v1/groups", "groups", {**PAGE, "search": search}), _print_groups)


def _print_groups(screen: Screen, document: dict[str, Any]) -> None:
    columns = ("GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR", "MEMBERS")
    rows = [
        (each["group"], each["type"], each["protocol_type"], each["state"], each["coordinator"], each["members"])
        for each in document["groups"]
    ]
    screen.table(columns, rows, empty_text="No groups.")
    if not document["is_complete"]:
        screen.line("Incomplete: some coordinators did not respond.", "bold")
        for problem in document["problems"]:
            screen.line(f"  {problem}")


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
    """Show the lag and status (OK, WARN, STALLED or STOPPED) of a group, in total and by partition."""
    session.show(session.get(path_of("groups", group, "lag")), _print_lag)


def _print_lag(screen: Screen, document: dict[str, Any]) -> None:
    status = document["status"]
    screen.pairs(
        [
            ("group", document["group"]),
            ("state", document["state"]),
            ("lag", "unknown" if document["lag"] is None else count_text(document["lag"], "record")),
            ("status", problem_text(status, when=status != "OK")),
        ]
    )
    screen.line()
    columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "STATUS", "LAST COMMIT")
    rows = [
        (
            each["topic"],
            each["partition"],
            each["committed_offset"],
            each["log_end_offset"],
            each["lag"],
            problem_text(each["status"] or "", when=each["status"] != "OK"),
            time_text(each["committed_at_ms"]),
        )
        for each in document["partitions"]
    ]
    screen.table(columns, rows, empty_text="No committed offsets.")


@command.command()
@_GROUP
@yes_option
@click.option("--dry-run", is_flag=True, help="Only check whether the group can be deleted.")
@with_session
def delete(session: Session, group: str, yes: bool, dry_run: bool) -> None:
    """Delete a group without members, and its offsets."""
    if not dry_run:
        confirm(f"Delete group {group} and its offsets?", yes=yes, session=session)
    document = session.send("DELETE", path_of("groups", group), query={"dry_run": dry_run})
    session.show(document, lambda screen, _: screen.line(
        f"Nothing was changed (--dry-run): group {group} can be deleted." if dry_run else f"Group {group} was deleted."
    ))  # fmt: skip
