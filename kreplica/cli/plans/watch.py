"""``kreplica plan watch``: progress of a plan until it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from kreplica.cli.http.rest import AdminUnreachable, RestClient
from kreplica.cli.http.session import INTERRUPTED, Session, path_of, with_session
from kreplica.cli.plans.views import ENDED, data_done, drained_text, moves_done
from kreplica.cli.terminal.screen import echo, seconds_text

POLL_S = 0.5
LINE_INTERVAL_S = 10.0
"""Minimum interval between progress lines if standard error is not a terminal."""

UNREACHABLE_S_MAX = 60.0
"""Time after which a broker that does not respond is no longer retried."""

ShowPlan = Callable[[dict[str, Any]], None]


@click.command()
@click.argument("plan")
@with_session
def command(session: Session, plan: str) -> None:
    """Follow the progress of a plan until it ends.  Ctrl-C ends this command, but not the plan.

    Exit status: 0 if the plan completed, 1 if it failed or was cancelled.  With --json, each change is printed as one
    line.
    """
    raise SystemExit(session.run_with_client(lambda client: watch(session, client, plan)))


async def watch(session: Session, client: RestClient, plan_id: str) -> int:
    """Show progress until the plan ends, or until Ctrl-C.

    :return: the exit status.
    """
    display: _Display = _TextLines(client)
    if session.as_json:
        display = _JsonLines()
    elif Console(stderr=True).is_terminal:
        display = _ProgressBars()
    try:
        with display:
            plan = await _follow(client, plan_id, display.show)
    except CancelledError:
        click.echo(f"Plan {plan_id} is still running.  Follow it with kreplica plan watch {plan_id}, "
                   f"cancel it with kreplica plan cancel {plan_id}.", err=True)  # fmt: skip
        return INTERRUPTED
    if not session.as_json:
        echo(_summary(plan))
        with suppress(AdminUnreachable):
            drained = await drained_text(client, plan)
            if drained is not None:
                echo(drained)
    return 0 if plan["state"] == "completed" else 1


async def _follow(client: RestClient, plan_id: str, show: ShowPlan) -> dict[str, Any]:
    unreachable_s = 0.0
    while True:
        try:
            plan: dict[str, Any] = await client.get(path_of("plans", plan_id))
            unreachable_s = 0.0
            show(plan)
            if plan["state"] in ENDED:
                return plan
        except AdminUnreachable as error:
            if unreachable_s == 0.0:
                echo(f"kreplica: {error}; retrying", err=True)
            unreachable_s += POLL_S
            if unreachable_s > UNREACHABLE_S_MAX:
                raise
        await deferLater(client.reactor, POLL_S)


def _summary(plan: dict[str, Any]) -> str:
    progress = plan["progress"]
    reason = f": {plan['reason']}" if plan["reason"] else ""
    return f"Plan {plan['id']} {_OUTCOMES[plan['state']]}{reason} ({moves_done(progress)} moves, {data_done(progress)})"


_OUTCOMES = {"completed": "completed", "cancelled": "was cancelled", "failed": "failed"}


class _Display:
    """Base class of progress displays."""

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""

    def show(self, plan: dict[str, Any]) -> None:
        """Show the current state of the plan."""
        raise NotImplementedError


class _JsonLines(_Display):
    """Prints each change as a line of JSON."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, plan: dict[str, Any]) -> None:
        line = json.dumps(plan)
        if line != self._last:
            click.echo(line)
        self._last = line


class _TextLines(_Display):
    """Prints a line at most every ``LINE_INTERVAL_S``, for logs."""

    def __init__(self, client: RestClient) -> None:
        self._reactor = client.reactor
        self._last = ("", -LINE_INTERVAL_S)

    def show(self, plan: dict[str, Any]) -> None:
        line, now_s = _line(plan), self._reactor.seconds()
        last, last_s = self._last
        if line != last and now_s - last_s >= LINE_INTERVAL_S:
            echo(line, err=True)
            self._last = (line, now_s)


class _ProgressBars(_Display):
    """Draws a progress bar of moves and one of bytes."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:>5}"), BarColumn(None), TextColumn("{task.fields[text]}"))
        self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, expand=True)
        self._moves = self._progress.add_task("moves", text="")
        self._data = self._progress.add_task("data", text="")

    def __enter__(self) -> _ProgressBars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, plan: dict[str, Any]) -> None:
        progress = plan["progress"]
        time_left = seconds_text(progress["eta_seconds"])
        about = f", about {time_left} left" if time_left else ""
        self._progress.update(self._moves, total=progress["moves"], completed=progress["finished"],
                              text=f"{moves_done(progress)}, {plan['state']}")  # fmt: skip
        self._progress.update(self._data, total=progress["bytes"] or 1, completed=progress["bytes_done"] or 0,
                              text=f"{data_done(progress)}{about}")  # fmt: skip
        self._progress.refresh()


def _line(plan: dict[str, Any]) -> str:
    progress = plan["progress"]
    time_left = seconds_text(progress["eta_seconds"])
    about = f", about {time_left} left" if time_left else ""
    return f"plan {plan['id']} {plan['state']}: {moves_done(progress)} moves, {data_done(progress)}{about}"
