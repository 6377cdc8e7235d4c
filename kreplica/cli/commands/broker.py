"""``kreplica broker``: brokers of the cluster, and cordons."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from kreplica.cli.commands.faults import print_faults
from kreplica.cli.http.list_options import (
    ListColumn,
    ListColumns,
    ListOptions,
    Row,
    plain,
    print_problems,
    rate,
    size,
)
from kreplica.cli.http.session import Session, dry_run_option, path_of, with_session
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.screen import Screen, bytes_text, problem_text, time_text

_BROKER = click.argument("broker_id", metavar="BROKER", type=click.IntRange(min=0))


def _state_text(broker: Row) -> Text:
    words = (("controller", broker["is_controller"]), ("cordoned", broker["cordoned"]))
    states = [word for word, applies in words if applies]
    return problem_text(", ".join(["live" if broker["live"] else "DEAD", *states]), when=not broker["live"])


def _problem_count(name: str, title: str) -> ListColumn:
    return ListColumn(title, lambda row: problem_text(row[name], when=bool(row[name])), (name,))


def _fault_count(row: Row) -> Text:
    count = len(row["faults"])
    return problem_text(count, when=count > 0)


COLUMNS = ListColumns(
    {
        "broker_id": plain("broker_id", "BROKER"),
        "state": ListColumn("STATE", _state_text, ("live", "is_controller", "cordoned")),
        "faults": ListColumn("FAULTS", _fault_count, ("faults",)),
        "rack": plain("rack"),
        "leaders": plain("leaders"),
        "replicas": plain("replicas"),
        "under_replicated_leaders": _problem_count("under_replicated_leaders", "UNDER-REPLICATED"),
        "log_bytes": size("log_bytes", "SIZE"),
        "usable_bytes": size("usable_bytes", "FREE"),
        "offline_log_dirs": _problem_count("offline_log_dirs", "FAILED DISKS"),
        "bytes_in_rate": rate("bytes_in_rate", "IN"),
        "bytes_out_rate": rate("bytes_out_rate", "OUT"),
        "messages_in_rate": plain("messages_in_rate", "RECORDS/S"),
        "connections": plain("connections"),
        "reactor_delay_p99_ms": plain("reactor_delay_p99_ms", "QUEUE P99 MS"),
        "version": plain("version"),
        "python": plain("python"),
        "endpoints": plain("endpoints"),
        "admin_url": plain("admin_url", "ADMIN"),
        "broker_epoch": plain("broker_epoch", "EPOCH"),
        "registered_at_ms": ListColumn(
            "REGISTERED", lambda row: time_text(row["registered_at_ms"]), ("registered_at_ms",)
        ),
    },
    default=(
        "broker_id",
        "state",
        "faults",
        "rack",
        "leaders",
        "replicas",
        "under_replicated_leaders",
        "log_bytes",
        "usable_bytes",
        "bytes_in_rate",
        "bytes_out_rate",
        "connections",
        "version",
        "endpoints",
    ),
    example="leaders>100,rack=a",
)

SUBCOMMANDS = {
    "connections": Subcommand("commands.broker_connections", "List the connections of a broker and their clients."),
    "drain": Subcommand("commands.broker_drain", "Create a plan that moves all replicas off brokers."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Brokers: state, replicas, log directories, cordons."""


@command.command("list")
@COLUMNS.options
@with_session
def list_brokers(session: Session, options: ListOptions) -> None:
    """List live brokers, dead brokers that hold replicas, and their faults.

    \b
    kreplica broker list --sort -log_bytes
    kreplica broker list --fields broker_id,state,endpoints,admin_url
    """
    document = COLUMNS.fetch(session, "/v1/brokers", "brokers", options)

    def print_brokers(screen: Screen, document: dict[str, Any]) -> None:
        COLUMNS.print(screen, document["brokers"], options, empty_text="No broker is registered.")
        print_faults(screen, [fault for row in document["brokers"] for fault in row.get("faults", ())], [])
        print_problems(screen, document)

    session.show(document, print_brokers)


@command.command("show")
@_BROKER
@with_session
def show_broker(session: Session, broker_id: int) -> None:
    """Show one broker, its log directories and its faults."""
    session.show(session.get(path_of("brokers", broker_id)), _print_broker)


def _print_broker(screen: Screen, broker: dict[str, Any]) -> None:
    screen.pairs(
        [
            ("broker", broker["broker_id"]),
            ("state", _state_text(broker)),
            ("rack", broker["rack"]),
            ("endpoints", broker["endpoints"]),
            ("admin API", broker["admin_url"]),
            ("broker epoch", broker["broker_epoch"]),
            ("registered", time_text(broker["registered_at_ms"])),
            ("leaders", broker["leaders"]),
            ("replicas", broker["replicas"]),
            ("under-replicated", broker["under_replicated_leaders"]),
        ]
    )
    columns = ("LOG DIRECTORY", "PARTITIONS", "SIZE", "FREE", "TOTAL", "ERROR")
    rows = [
        (
            each["path"],
            each["partitions"],
            bytes_text(each["size_bytes"]),
            bytes_text(each["usable_bytes"]),
            bytes_text(each["total_bytes"]),
            problem_text(each["error"] or "", when=True),
        )
        for each in broker.get("log_dirs") or []
    ]
    screen.line()
    screen.table(columns, rows, empty_text="The broker reported no log directories.")
    print_faults(screen, broker.get("faults", []), broker.get("problems", []))


@command.command()
@_BROKER
@click.option("--reason", help="A note, stored in the cordon's znode.")
@dry_run_option
@with_session
def cordon(session: Session, broker_id: int, reason: str | None, dry_run: bool) -> None:
    """Stop placing new replicas on a broker; existing replicas stay."""
    body = {} if reason is None else {"reason": reason}
    document = session.send("PUT", path_of("brokers", broker_id, "cordon"), body, query={"dry_run": dry_run})
    text = f"Broker {broker_id} is cordoned: no new replicas are placed on it."
    session.show_write(document, lambda screen, _: screen.line(text))


@command.command()
@_BROKER
@dry_run_option
@with_session
def uncordon(session: Session, broker_id: int, dry_run: bool) -> None:
    """Allow new replicas on a broker again."""
    document = session.send("DELETE", path_of("brokers", broker_id, "cordon"), query={"dry_run": dry_run})
    session.show_write(document, lambda screen, _: screen.line(f"Broker {broker_id} is no longer cordoned."))
