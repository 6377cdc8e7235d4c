"""Text output of plans: lists, details, moves and previews."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.text import Text

from kreplica.cli.terminal.screen import (
    Screen,
    bytes_text,
    cordoned_text,
    count_text,
    escape_controls,
    problem_text,
    seconds_text,
    time_text,
)

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient

MOVES_SHOWN = 20

ENDED = ("completed", "cancelled", "failed")
"""States of a plan that has ended."""

_STYLES = {"completed": "green", "running": "cyan", "failed": "bold red", "cancelled": "yellow", "cancelling": "yellow"}


def state_text(state: str) -> Text:
    """Return the state of a plan or move in its colour."""
    return Text(escape_controls(state), _STYLES.get(state, ""))


def print_plans(screen: Screen, document: dict[str, Any]) -> None:
    """Print a table of plans."""
    columns = ("PLAN", "KIND", "STATE", "MOVES", "DATA", "TIME LEFT", "CREATED", "COMMENT")
    rows = [
        (
            plan["id"],
            plan["kind"],
            state_text(plan["state"]),
            moves_done(plan["progress"]),
            data_done(plan["progress"]),
            seconds_text(plan["progress"]["eta_seconds"]),
            time_text(plan["created_at_ms"]),
            plan["comment"] or "",
        )
        for plan in document["plans"]
    ]
    screen.table(columns, rows, empty_text="No plans.", prose=("COMMENT",))


def print_plan(screen: Screen, plan: dict[str, Any]) -> None:
    """Print the details of a plan, without its moves."""
    progress = plan["progress"]
    throttle = plan["throttle_bytes_per_second"]
    failed = progress["failed"]
    screen.pairs(
        [
            ("plan", plan["id"]),
            ("kind", plan["kind"]),
            ("state", state_text(plan["state"])),
            ("reason", plan["reason"]),
            ("comment", plan["comment"] or None),
            ("created", time_text(plan["created_at_ms"])),
            ("ended", time_text(plan["ended_at_ms"])),
            ("throttle", "none" if throttle is None else f"{bytes_text(throttle)}/s"),
            ("concurrent moves", f"{plan['moves_at_once']} per broker"),
            ("moves", f"{moves_done(progress)} ({progress['moving']} moving, {progress['waiting']} waiting)"),
            ("failed", problem_text(failed) if failed else None),
            ("data", data_done(progress)),
            ("time left", seconds_text(progress["eta_seconds"])),
        ]
    )


async def drained_text(client: RestClient, plan: dict[str, Any]) -> str | None:
    """Return a sentence if brokers that a plan has drained are still cordoned; None otherwise."""
    brokers = plan["request"].get("brokers") if plan["kind"] == "drain" and plan["state"] in ENDED else None
    if not brokers:
        return None
    cordoned = (await client.get("/v1/cluster")).get("cordoned_brokers", ())
    drained = [broker for broker in sorted(set(brokers)) if broker in cordoned]
    return cordoned_text(drained) if drained else None


def print_moves(screen: Screen, moves: Iterable[dict[str, Any]]) -> None:
    """Print a table of moves."""
    columns = ("MOVE", "TOPIC", "PARTITION", "ACTION", "FROM", "TO", "DATA", "STATE", "")
    rows = [
        (
            move["number"],
            move["topic"],
            move["partition"],
            move["action"],
            move["from"],
            move["to"],
            bytes_text(move["bytes"]),
            state_text(move["state"]),
            move["reason"] or "",
        )
        for move in moves
    ]
    screen.table(columns, rows, empty_text="No moves.")


def print_preview(screen: Screen, preview: dict[str, Any]) -> None:
    """Print the moves and effects of a plan that does not exist yet."""
    moves, count = preview["moves"], preview["moves_count"]
    if moves:
        columns = ("TOPIC", "PARTITION", "ACTION", "FROM", "TO", "DATA")
        rows = [
            (each["topic"], each["partition"], each["action"], each["from"], each["to"], bytes_text(each["bytes"]))
            for each in moves[:MOVES_SHOWN]
        ]
        screen.table(columns, rows, empty_text="")
        if count > MOVES_SHOWN:
            screen.line(f"and {count - MOVES_SHOWN} more")
        screen.line()
    _print_brokers(screen, preview["brokers"])
    time_left = seconds_text(preview["eta_seconds"])
    duration = f", about {time_left}" if time_left else ""
    screen.line(f"{count_text(count, 'move')}, {bytes_text(preview['bytes'])}{duration}", "bold")
    for warning in preview["warnings"]:
        screen.line(f"Warning: {warning}", "yellow")


def _print_brokers(screen: Screen, brokers: list[dict[str, Any]]) -> None:
    columns = ("BROKER", "REPLICAS", "LEADERS", "DATA IN", "DATA OUT")
    rows = [
        (
            each["broker_id"],
            _change(each["replicas_before"], each["replicas_after"]),
            _change(each["leaders_before"], each["leaders_after"]),
            bytes_text(each["bytes_in"]),
            bytes_text(each["bytes_out"]),
        )
        for each in brokers
    ]
    if rows:
        screen.table(columns, rows, empty_text="")
        screen.line()


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def moves_done(progress: dict[str, Any]) -> str:
    """Return the numbers of finished and total moves: ``3 of 10``."""
    return f"{progress['finished']} of {progress['moves']}"


def data_done(progress: dict[str, Any]) -> str:
    """Return copied and total bytes: ``1.0 GiB of 3.5 GiB``."""
    return f"{bytes_text(progress['bytes_done'] or 0)} of {bytes_text(progress['bytes'] or 0)}"
