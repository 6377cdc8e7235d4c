"""``kreplica partition``: replicas, leaders and state of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from kreplica.cli.http.list_options import limit_option
from kreplica.cli.http.session import PAGE, Session, path_of, with_session
from kreplica.cli.terminal.parameter_types import Partition
from kreplica.cli.terminal.screen import Screen, bytes_text, problem_text, time_text

PARTITION_COLUMNS = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "")


@click.group()
def command() -> None:
    """Partitions: leaders, replicas, in-sync replicas, state."""


@command.command("list")
@click.option("--offline", "state", flag_value="offline", help="Only partitions without a leader.")
@click.option(
    "--under-replicated", "state", flag_value="under_replicated", help="Only partitions with out-of-sync replicas."
)
@click.option("--moving", "state", flag_value="moving", help="Only partitions that are being reassigned.")
@click.option("--topic", help="Only partitions of this topic.")
@limit_option
@with_session
def list_partitions(session: Session, state: str | None, topic: str | None, limit: int | None) -> None:
    """List partitions."""
    path, query = "/v1/partitions", {"state": state, **PAGE}
    if topic is not None:
        if state is not None:
            raise click.UsageError("--topic cannot be combined with --offline, --under-replicated or --moving")
        path, query = f"{path_of('topics', topic)}/partitions", {**PAGE}
    document = session.get_all(path, "partitions", query, limit)
    session.show(document, _print_partitions)


def _print_partitions(screen: Screen, document: dict[str, Any]) -> None:
    screen.table(PARTITION_COLUMNS, partition_rows(document["partitions"]), empty_text="No partitions match.")


def partition_rows(partitions: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Return table rows with the columns ``PARTITION_COLUMNS``."""
    return [
        (
            each["topic"],
            each["partition"],
            problem_text("none") if each["leader"] is None else each["leader"],
            each["leader_epoch"],
            each["replicas"],
            problem_text(each["isr"]) if len(each["isr"]) < len(each["replicas"]) else each["isr"],
            _remarks(each),
        )
        for each in partitions
    ]


def _remarks(partition: dict[str, Any]) -> str:
    texts = [
        f"{text} {','.join(map(str, partition[name]))}"
        for name, text in (
            ("offline_replicas", "offline on"),
            ("adding", "being added to"),
            ("removing", "being removed from"),
        )
        if partition[name]
    ]
    return "; ".join([*texts, *(["read-only"] if partition["read_only"] else [])])


@command.command("show")
@click.argument("partition", type=Partition(), metavar="TOPIC:PARTITION")
@with_session
def show_partition(session: Session, partition: tuple[str, int]) -> None:
    """Show the details of one partition."""
    topic, number = partition
    session.show(session.get(path_of("topics", topic, "partitions", number)), _print_partition)


def _print_partition(screen: Screen, partition: dict[str, Any]) -> None:
    screen.pairs(
        [
            ("partition", f"{partition['topic']}:{partition['partition']}"),
            ("leader", problem_text("none") if partition["leader"] is None else partition["leader"]),
            ("leader epoch", partition["leader_epoch"]),
            ("replicas", partition["replicas"]),
            ("in sync", partition["isr"]),
            ("eligible to lead", partition.get("eligible_leader_replicas") or None),
            ("remarks", _remarks(partition) or None),
            ("offsets", _offset_range(partition)),
            ("size", bytes_text(partition.get("size_bytes"))),
            ("last state change", time_text(partition.get("written_at_ms"))),
            ("controller epoch", partition.get("controller_epoch")),
            ("partition epoch", partition.get("partition_epoch")),
        ]
    )


def _offset_range(partition: dict[str, Any]) -> str | None:
    start, end = partition.get("start_offset"), partition.get("end_offset")
    return None if start is None or end is None else f"from {start} to {end}"
