"""``kreplica topic``: administration of topics."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.commands.partition import PARTITION_COLUMNS, partition_rows
from kreplica.cli.http.session import PAGE, Session, confirm, connected, dry_run_option, path_of, yes_option
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.parameter_types import Assignment, Setting
from kreplica.cli.terminal.screen import Screen, bad, counted

_TOPIC = click.argument("topic")
_PARTITIONS = click.argument("partitions", type=click.IntRange(min=1))

SUBCOMMANDS = {
    "config": Subcommand("commands.topic_config", "Topic settings: get, set, remove."),
    "export": Subcommand("transfer.topic_export", "Export records to a file."),
    "import": Subcommand("transfer.topic_import", "Import records from a file."),
    "copy": Subcommand("transfer.topic_copy", "Copy records to another topic."),
    "shrink": Subcommand("commands.topic_shrink", "Create a plan that removes partitions."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Administration and copies of topics."""


@command.command("list")
@click.option("--search", metavar="TEXT", help="Only names that contain this text.")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@connected
def listed(session: Session, search: str | None, internal: bool) -> None:
    """List topics."""
    query = {**PAGE, "search": search, "internal": internal}
    session.show(session.get_all("/v1/topics", "topics", query), _describe_all)


def _describe_all(screen: Screen, document: dict[str, Any]) -> None:
    columns = ("TOPIC", "PARTITIONS", "REPLICAS", "OFFLINE", "UNDER-REPLICATED", "")
    rows = [
        (
            each["name"],
            each["partitions"],
            each["replication_factor"],
            bad(each["offline_partitions"], when=bool(each["offline_partitions"])),
            bad(each["under_replicated_partitions"], when=bool(each["under_replicated_partitions"])),
            _remarks(each),
        )
        for each in document["topics"]
    ]
    screen.table(columns, rows, nothing="No topics match.")


def _remarks(topic: dict[str, Any]) -> str:
    remarks = (("internal", topic["is_internal"]), ("being deleted", topic["deleting"]))
    return ", ".join(text for text, applies in remarks if applies)


@command.command("show")
@_TOPIC
@connected
def shown(session: Session, topic: str) -> None:
    """Show a topic and its partitions.

    With --json, only the topic; see `partition list --topic`.
    """
    path = path_of("topics", topic)
    document = session.ask(lambda client: _topic(client, path, alone=session.as_json))
    session.show(document, _describe)


async def _topic(client: Any, path: str, *, alone: bool) -> dict[str, Any]:
    document: dict[str, Any] = await client.get(path)
    if not alone:
        pages = await client.pages(f"{path}/partitions", "partitions", PAGE)
        document["rows"] = pages["partitions"]
    return document


def _describe(screen: Screen, topic: dict[str, Any]) -> None:
    configs = [f"{each['name']}={each['value']}" for each in topic["configs"] if not each["is_default"]]
    screen.pairs(
        [
            ("topic", topic["name"]),
            ("id", topic["topic_id"]),
            ("partitions", topic["partitions"]),
            ("replicas", topic["replication_factor"]),
            ("remarks", _remarks(topic) or None),
            ("settings", configs or "all at their defaults"),
        ]
    )
    screen.line()
    screen.table(PARTITION_COLUMNS[1:], [row[1:] for row in partition_rows(topic["rows"])], nothing="No partitions.")


@command.command()
@_TOPIC
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Number of partitions.  [default: num.partitions of the broker]"
)
@click.option("--replication-factor", type=click.IntRange(min=1),
              help="Replicas per partition.  [default: default.replication.factor of the broker]")  # fmt: skip
@click.option("--assign", "assigned", multiple=True, type=Assignment(),
              help="Brokers of one partition, for example 0=1,2,3; repeat for each partition, "
              "starting with 0.")  # fmt: skip
@click.option(
    "--config", "configs", multiple=True, type=Setting(), help="A topic setting, for example retention.ms=86400000."
)
@dry_run_option
@connected
def create(
    session: Session,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assigned: tuple[tuple[int, list[int]], ...],
    configs: tuple[tuple[str, str], ...],
    dry_run: bool,
) -> None:
    """Create a topic.

    \b
    kreplica topic create orders --partitions 6 --replication-factor 3
    kreplica topic create audit --assign 0=1,2 --assign 1=2,3 --config cleanup.policy=compact
    """
    if assigned and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--assign cannot be combined with --partitions or --replication-factor")
    body = {
        "name": topic,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "assignment": {str(number): brokers for number, brokers in assigned},
        "configs": dict(configs),
    }
    given = {name: value for name, value in body.items() if value not in (None, {})}
    document = session.send("POST", "/v1/topics", given, query={"dry_run": dry_run})
    session.show_written(document, _describe_created)


def _describe_created(screen: Screen, created: dict[str, Any]) -> None:
    partitions, replicas = (
        counted(created["partitions"], "partition"),
        counted(created["replication_factor"], "replica"),
    )
    screen.line(f"Created topic {created['name']} with {partitions} of {replicas}.")
    _describe_leaders(screen, created)


def _describe_leaders(screen: Screen, created: dict[str, Any]) -> None:
    if not created["led"]:
        screen.line(f"Some partitions have no leader yet: kreplica topic show {created['name']}", "bold")


@command.command()
@_TOPIC
@_PARTITIONS
@dry_run_option
@connected
def grow(session: Session, topic: str, partitions: int, dry_run: bool) -> None:
    """Add partitions to a topic, up to a total of PARTITIONS.

    Existing records stay in their partitions; new records with the same key can go to another partition.
    """
    body = {"partitions": partitions}
    document = session.send("PATCH", path_of("topics", topic), body, query={"dry_run": dry_run})
    session.show_written(document, _describe_grown)


def _describe_grown(screen: Screen, grown: dict[str, Any]) -> None:
    screen.line(f"Topic {grown['name']} now has {counted(grown['partitions'], 'partition')}.")
    _describe_leaders(screen, grown)


@command.command()
@_TOPIC
@yes_option
@dry_run_option
@connected
def delete(session: Session, topic: str, yes: bool, dry_run: bool) -> None:
    """Delete a topic and all its records."""
    if not dry_run:
        confirm(f"Delete topic {topic} and all its records?", yes=yes, session=session)
    document = session.send("DELETE", path_of("topics", topic), query={"dry_run": dry_run})
    session.show_written(document, lambda screen, response: screen.line(
        f"Topic {topic} was deleted." if response["deleted"] else f"Topic {topic} is being deleted."
    ))  # fmt: skip
