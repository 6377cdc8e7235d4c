"""``kreplica broker connections``: open connections of a broker, with their clients and load."""

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
    rate,
    size,
)
from kreplica.cli.http.session import Session, path_of, with_session
from kreplica.cli.terminal.screen import Screen, time_text


def _software(connection: Row) -> str | None:
    names = (connection["software_name"], connection["software_version"])
    return " ".join(name for name in names if name) or None


COLUMNS = ListColumns(
    {
        "address": plain("address"),
        "client_id": plain("client_id"),
        "software": ListColumn("SOFTWARE", _software, ("software_name", "software_version")),
        "user": plain("user"),
        "listener": plain("listener"),
        "is_broker": plain("is_broker", "BROKER"),
        "bytes_in_rate": rate("bytes_in_rate", "IN"),
        "bytes_out_rate": rate("bytes_out_rate", "OUT"),
        "bytes_in": size("bytes_in", "RECEIVED"),
        "bytes_out": size("bytes_out", "SENT"),
        "in_flight": plain("in_flight"),
        "idle_ms": duration("idle_ms", "IDLE"),
        "opened_at_ms": ListColumn("OPENED", lambda row: time_text(row["opened_at_ms"]), ("opened_at_ms",)),
    },
    default=(
        "address",
        "client_id",
        "software",
        "user",
        "listener",
        "bytes_in_rate",
        "bytes_out_rate",
        "in_flight",
        "idle_ms",
        "opened_at_ms",
    ),
    example="software_name~librdkafka,idle_ms>60000",
)


@click.command()
@click.argument("broker_id", metavar="BROKER", type=click.IntRange(min=0))
@COLUMNS.options
@with_session
def command(session: Session, broker_id: int, options: ListOptions) -> None:
    """List the open connections of a broker: clients, their libraries, users and load.

    \b
    kreplica broker connections 1 --sort -bytes_in_rate --limit 10
    kreplica broker connections 1 --filter 'software_name~librdkafka'
    """
    document = COLUMNS.fetch(session, path_of("brokers", broker_id, "connections"), "connections", options)

    def print_connections(screen: Screen, document: dict[str, Any]) -> None:
        COLUMNS.print(screen, document["connections"], options, empty_text="No connections match.")
        print_problems(screen, document)

    session.show(document, print_connections)
