"""``kreplica why``: explanation of the state of a partition, group, plan or broker."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.request_commands import command_of
from kreplica.cli.http.session import Session, connected, path_of
from kreplica.cli.terminal.parameter_types import Partition
from kreplica.cli.terminal.screen import Screen, bad, time_text

_DECISIONS_SHOWN = 10


@click.group()
def command() -> None:
    """Explain a state: the controller decisions that led to it, pending events, and possible actions."""


@command.command()
@click.argument("partition", type=Partition(), metavar="TOPIC:PARTITION")
@connected
def partition(session: Session, partition: tuple[str, int]) -> None:
    """Explain the state of a partition."""
    topic, number = partition
    session.show(session.get(path_of("why", "partitions", topic, number)), _describe)


@command.command()
@click.argument("group")
@connected
def group(session: Session, group: str) -> None:
    """Explain the state of a group."""
    session.show(session.get(path_of("why", "groups", group)), _describe)


@command.command()
@click.argument("plan")
@connected
def plan(session: Session, plan: str) -> None:
    """Explain the state of a plan."""
    session.show(session.get(path_of("why", "plans", plan)), _describe)


@command.command()
@click.argument("broker", type=click.IntRange(min=0))
@connected
def broker(session: Session, broker: int) -> None:
    """Explain slow responses of a broker: operations that blocked its event loop."""
    session.show(session.get(path_of("why", "brokers", broker)), _describe)


def _describe(screen: Screen, why: dict[str, Any]) -> None:
    screen.line(bad(why["summary"], when=False))
    _sentences(screen, "It waits for", why["waits_for"])
    if why["you_can"]:
        screen.line()
        screen.line("You can", "bold")
        for each in why["you_can"]:
            screen.line(f"  {each['text']}")
            request = each.get("request")
            if request:
                screen.line(f"    {command_of(request['method'], request['path'], request.get('body'))}", "dim")
    stalls = why["facts"].get("stalls")
    if stalls:
        screen.line()
        blocked = [(time_text(each["at_ms"]), f"{each['duration_ms']} ms", each["cause"]) for each in stalls]
        screen.table(("BLOCKED UNTIL", "FOR", "BY"), blocked, nothing="", prose=("BY",))
    if why["decided"]:
        screen.line()
        columns = ("DECIDED", "BY BROKER", "EPOCH", "ON", "CHANGE")
        rows = [
            (time_text(each["at_ms"]), each["broker_id"], each["controller_epoch"], each["event"], each["change"])
            for each in why["decided"][:_DECISIONS_SHOWN]
        ]
        screen.table(columns, rows, nothing="", prose=("ON", "CHANGE"))


def _sentences(screen: Screen, title: str, sentences: list[str]) -> None:
    if sentences:
        screen.line()
        screen.line(title, "bold")
    for sentence in sentences:
        screen.line(f"  {sentence}")
