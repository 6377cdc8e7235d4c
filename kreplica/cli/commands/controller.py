"""``kreplica controller``: the elected controller."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.session import Session, dry_run_option, with_session
from kreplica.cli.terminal.screen import Screen, problem_text


@click.group()
def command() -> None:
    """Show the controller, or make it resign."""


@command.command()
@with_session
def show(session: Session) -> None:
    """Show the controller, and the number of ZooKeeper watches that each broker holds."""
    session.show(session.get("/v1/controller"), _print_controller)


def _print_controller(screen: Screen, document: dict[str, Any]) -> None:
    broker_id, epoch = document["broker_id"], document["epoch"]
    screen.pairs([("controller", problem_text("none") if broker_id is None else f"broker {broker_id}, epoch {epoch}")])
    screen.line()
    rows = [
        (
            row["broker_id"],
            problem_text("no response") if row["zookeeper_watches"] is None else row["zookeeper_watches"],
            row["controller_watches"],
        )
        for row in document["brokers"]
    ]
    screen.table(("BROKER", "ZOOKEEPER WATCHES", "AS CONTROLLER"), rows, empty_text="No live brokers.")


@command.command()
@dry_run_option
@with_session
def resign(session: Session, dry_run: bool) -> None:
    """Make the controller resign, and wait until a controller is elected.

    If other brokers are live, one of them becomes the controller.  Partitions keep their leaders.
    """
    document = session.send("POST", "/v1/controller/resign", query={"dry_run": dry_run})
    session.show_write(document, _print_resigned)


def _print_resigned(screen: Screen, document: dict[str, Any]) -> None:
    before = document["previous"]
    screen.line(
        f"Broker {document['broker_id']} is the controller, epoch {document['epoch']} "
        f"(before: broker {before['broker_id']}, epoch {before['epoch']})."
    )
