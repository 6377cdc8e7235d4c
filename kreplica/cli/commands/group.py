"""``kreplica group``: consumer groups and their lag."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.session import PAGE, Session, confirm, connected, path_of, yes_option
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.screen import Screen, bad, counted, time_text

_GROUP = click.argument("group")


SUBCOMMANDS = {"reset": Subcommand("commands.group_reset", "Set the committed offsets of a group.")}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Consumer groups: members, lag, offsets."""


@command.command("list")
@click.option("--search", metavar="TEXT", help="Only names that contain this text.")
@connected
def listed(session: Session, search: str | None) -> None:
    """List all groups of the cluster."""
    session.show(session.get_all("/v1/groups", "groups", {**PAGE, "search": search}), _describe_all)


def _describe_all(screen: Screen, document: dict[str, Any]) -> None:
    columns = ("GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR", "MEMBERS")
    rows = [
        (each["group"], each["type"], each["protocol_type"], each["state"], each["coordinator"], each["members"])
        for each in document["groups"]
    ]
    screen.table(columns, rows, nothing="No groups.")
    if not document["is_complete"]:
        screen.line("Incomplete: some coordinators did not respond.", "bold")
        for problem in document["problems"]:
            screen.line(f"  {problem}")


@command.command("show")
@_GROUP
@connected
def shown(session: Session, group: str) -> None:
    """Show a group, its members and their assigned partitions."""
    session.show(session.get(path_of("groups", group)), _describe)


def _describe(screen: Screen, document: dict[str, Any]) -> None:
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
        (each["member_id"], each["client_id"], each["client_host"], each["instance_id"], _assigned(each["assignment"]))
        for each in document["members"] or []
    ]
    screen.table(("MEMBER", "CLIENT", "HOST", "INSTANCE", "ASSIGNMENT"), rows, nothing="No members.")


def _assigned(assignment: list[dict[str, Any]] | None) -> str:
    topics = [f"{each['topic']}:{','.join(map(str, each['partitions']))}" for each in assignment or []]
    return " ".join(topics) or "nothing"


@command.command()
@_GROUP
@connected
def lag(session: Session, group: str) -> None:
    """Show the lag of a group by partition, and the status: OK, WARN, STALLED or STOPPED."""
    session.show(session.get(path_of("groups", group, "lag")), _describe_lag)


def _describe_lag(screen: Screen, document: dict[str, Any]) -> None:
    status = document["status"]
    screen.pairs(
        [
            ("group", document["group"]),
            ("state", document["state"]),
            ("lag", "unknown" if document["lag"] is None else counted(document["lag"], "record")),
            ("status", bad(status, when=status != "OK")),
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
            bad(each["status"] or "", when=each["status"] != "OK"),
            time_text(each["committed_at_ms"]),
        )
        for each in document["partitions"]
    ]
    screen.table(columns, rows, nothing="No committed offsets.")


@command.command()
@_GROUP
@yes_option
@click.option("--dry-run", is_flag=True, help="Only check whether the group can be deleted.")
@connected
def delete(session: Session, group: str, yes: bool, dry_run: bool) -> None:
    """Delete a group without members, and its offsets."""
    if not dry_run:
        confirm(f"Delete group {group} and its offsets?", yes=yes, session=session)
    document = session.send("DELETE", path_of("groups", group), query={"dry_run": dry_run})
    session.show(document, lambda screen, _: screen.line(
        f"Nothing was changed (--dry-run): group {group} can be deleted." if dry_run else f"Group {group} was deleted."
    ))  # fmt: skip
