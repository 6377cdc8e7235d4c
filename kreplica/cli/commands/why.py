"""``kreplica why``: explains a partition, a group, a plan, a slow broker, a throttled client, or a user's access."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.request_commands import command_of
from kreplica.cli.http.session import Session, path_of, with_session
from kreplica.cli.terminal.access_types import NamedResource, Operation, PrincipalName, ResourceName
from kreplica.cli.terminal.parameter_types import Partition
from kreplica.cli.terminal.screen import Screen, problem_text, time_text

_DECISIONS_SHOWN = 10


@click.group()
def command() -> None:
    """Explain why something is in its current state: controller decisions, current blockers, and possible actions."""


@command.command()
@click.argument("partition", type=Partition(), metavar="TOPIC:PARTITION")
@with_session
def partition(session: Session, partition: tuple[str, int]) -> None:
    """Explain the state of a partition."""
    topic, number = partition
    session.show(session.get(path_of("why", "partitions", topic, number)), _print_explanation)


@command.command()
@click.argument("group")
@with_session
def group(session: Session, group: str) -> None:
    """Explain the state of a group."""
    session.show(session.get(path_of("why", "groups", group)), _print_explanation)


@command.command()
@click.argument("plan")
@with_session
def plan(session: Session, plan: str) -> None:
    """Explain the state of a plan."""
    session.show(session.get(path_of("why", "plans", plan)), _print_explanation)


@command.command(short_help="Explain the faults of a broker.")
@click.argument("broker", type=click.IntRange(min=0))
@with_session
def broker(session: Session, broker: int) -> None:
    """Explain the faults of a broker, for example a full disk, and list the work that blocked its event loop."""
    session.show(session.get(path_of("why", "brokers", broker)), _print_explanation)


@command.command(short_help="Explain whether quotas slow down a client.")
@click.argument("principal", type=PrincipalName(), default="User:ANONYMOUS")
@click.option("--client-id", metavar="ID", help="The client ID; by default, all throttled client IDs.")
@click.option("--address", metavar="ADDRESS", help="IP address of the client; needed to explain refused connections.")
@with_session
def client(session: Session, principal: str, client_id: str | None, address: str | None) -> None:
    """Explain whether quotas slow down a client, for example: kreplica why client User:alice --client-id app."""
    query = {"principal": principal, "client_id": client_id, "address": address}
    session.show(session.get(path_of("why", "client"), query), _print_explanation)


@command.command(short_help="Explain why a user does or does not have access.")
@click.argument("principal", type=PrincipalName())
@click.argument("operation", type=Operation())
@click.argument("resource", type=ResourceName())
@click.option("--host", metavar="ADDRESS", help="Address of the client; without it, only ACLs for all addresses apply.")
@with_session
def access(session: Session, principal: str, operation: str, resource: NamedResource, host: str | None) -> None:
    """Explain whether a user may perform an operation, for example: kreplica why access User:alice Read orders.

    A RESOURCE is a topic, or topic:NAME, group:NAME, transactional-id:NAME, user:NAME, or cluster.
    """
    question = {"principal": principal, "operation": operation, "host": host}
    query = {**question, "resource_type": resource.type, "resource_name": resource.name}
    session.show(session.get(path_of("why", "access"), query), _print_access)


def _print_access(screen: Screen, document: dict[str, Any]) -> None:
    screen.line(problem_text(document["summary"], when=not document["allowed"]))
    if document["applying"]:
        screen.line()
        columns = ("DECIDES", "PERMISSION", "OPERATION", "PRINCIPAL", "HOST", "RESOURCE", "PATTERN")
        names = ("permission", "operation", "principal", "host", "resource_name", "pattern_type")
        rows = [["*" if row == document["acl"] else "", *(row[name] for name in names)] for row in document["applying"]]
        screen.table(columns, rows, empty_text="")


def _print_explanation(screen: Screen, why: dict[str, Any]) -> None:
    screen.line(problem_text(why["summary"], when=False))
    _print_sentences(screen, "Waiting for", why["waits_for"])
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
        screen.table(("BLOCKED UNTIL", "FOR", "BY"), blocked, empty_text="", prose=("BY",))
    if why["decided"]:
        screen.line()
        columns = ("DECIDED", "BY BROKER", "EPOCH", "ON", "CHANGE")
        rows = [
            (time_text(each["at_ms"]), each["broker_id"], each["controller_epoch"], each["event"], each["change"])
            for each in why["decided"][:_DECISIONS_SHOWN]
        ]
        screen.table(columns, rows, empty_text="", prose=("ON", "CHANGE"))


def _print_sentences(screen: Screen, title: str, sentences: list[str]) -> None:
    if sentences:
        screen.line()
        screen.line(title, "bold")
    for sentence in sentences:
        screen.line(f"  {sentence}")
