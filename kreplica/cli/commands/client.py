"""``kreplica client``: clients with telemetry (KIP-714), and the metrics that they push."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.list_options import (
    ListColumn,
    ListColumns,
    ListOptions,
    Row,
    duration,
    plain,
    print_problems,
    size,
)
from kreplica.cli.http.session import Session, path_of, with_session
from kreplica.cli.terminal.screen import Screen, time_text

NAMES_SHOWN_MAX = 5
"""Maximum number of subscriptions shown in one cell."""


def _subscriptions(client: Row) -> str:
    names = client["subscriptions"]
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more


COLUMNS = ListColumns(
    {
        "client_instance_id": plain("client_instance_id", "CLIENT"),
        "client_id": plain("client_id"),
        "software": ListColumn(
            "SOFTWARE",
            lambda row: f"{row['software_name']} {row['software_version']}",
            ("software_name", "software_version"),
        ),
        "user": plain("user"),
        "address": plain("address"),
        "broker_id": plain("broker_id", "BROKER"),
        "state": plain("state"),
        "subscriptions": ListColumn("SUBSCRIPTIONS", _subscriptions, ("subscriptions",)),
        "push_interval_ms": duration("push_interval_ms", "INTERVAL"),
        "metrics": plain("metrics"),
        "pushes": plain("pushes"),
        "bytes": size("bytes", "SIZE"),
        "pushed_at_ms": ListColumn("PUSHED", lambda row: time_text(row["pushed_at_ms"]), ("pushed_at_ms",)),
        "last_request_at_ms": ListColumn(
            "LAST REQUEST", lambda row: time_text(row["last_request_at_ms"]), ("last_request_at_ms",)
        ),
    },
    default=(
        "client_instance_id",
        "client_id",
        "software",
        "address",
        "broker_id",
        "state",
        "subscriptions",
        "metrics",
        "pushed_at_ms",
    ),
    example="software_name~librdkafka,metrics>0",
)


@click.group()
def command() -> None:
    """Clients that push their metrics to the brokers (KIP-714).

    A subscription selects clients and metrics; clients request their subscriptions when they connect:

    \b
    kreplica config set client-metrics all 'metrics=*' interval.ms=10000
    """


@command.command("list")
@COLUMNS.options
@with_session
def list_clients(session: Session, options: ListOptions) -> None:
    """List the clients that push metrics.

    \b
    kreplica client list --filter 'software_name~librdkafka'
    """
    document = COLUMNS.fetch(session, "/v1/clients", "clients", options)

    def print_clients(screen: Screen, document: dict[str, Any]) -> None:
        COLUMNS.print(screen, document["clients"], options, empty_text="No client has requested a subscription.")
        print_problems(screen, document)

    session.show(document, print_clients)


@command.command("show")
@click.argument("client_instance_id", metavar="CLIENT")
@click.option("--name", "part", metavar="TEXT", help="Only metrics whose names contain this text.")
@with_session
def show_client(session: Session, client_instance_id: str, part: str | None) -> None:
    """Show the last metrics of a client, given by its client instance ID.

    \b
    kreplica client show --name latency GB2pF5WcRn6lbqJQkd91UQ
    kreplica client show -- -starts-with-a-hyphen-
    """
    document = session.get(path_of("clients", client_instance_id))
    document["metrics"] = [each for each in document["metrics"] if part is None or part in each["name"]]

    def print_metrics(screen: Screen, document: dict[str, Any]) -> None:
        if document["labels"]:
            screen.line(f"Labels: {_pairs(document['labels'])}")
        rows = [
            (each["name"], _pairs(each["attributes"]), each["value"], each["unit"], each["kind"])
            for each in document["metrics"]
        ]
        columns = ("METRIC", "ATTRIBUTES", "VALUE", "UNIT", "KIND")
        screen.table(columns, rows, empty_text="No metrics match." if part else "The client has no metrics.")
        if not document["is_complete"]:
            screen.line("The client has more values than are shown.")

    session.show(document, print_metrics)


@command.command("subscriptions")
@with_session
def list_subscriptions(session: Session) -> None:
    """List the client-metrics subscriptions; `kreplica config get client-metrics NAME` shows one."""
    document = session.get("/v1/configs/client-metrics")

    def print_names(screen: Screen, document: dict[str, Any]) -> None:
        rows = [(name,) for name in document["subscriptions"]]
        screen.table(("SUBSCRIPTION",), rows, empty_text="There are no subscriptions, so clients push no metrics.")

    session.show(document, print_names)


def _pairs(texts: dict[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in texts.items())
