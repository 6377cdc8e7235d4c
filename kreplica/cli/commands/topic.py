"""``kreplica topic``: administration of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.commands.partition import PARTITION_COLUMNS, partition_rows
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
from kreplica.cli.http.session import PAGE, Session, confirm, dry_run_option, path_of, with_session, yes_option
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.parameter_types import Assignment, KafkaSetting
from kreplica.cli.terminal.screen import Screen, count_text, problem_text

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient

_TOPIC = click.argument("topic")
_PARTITIONS = click.argument("partitions", type=click.IntRange(min=1))

_HEALTH = {"under_min_isr": "under min.insync.replicas", "under_replicated": "under-replicated"}


def _health(topic: Row) -> object:
    state = topic["health"]
    return problem_text(_HEALTH.get(state, state), when=state not in ("healthy", "deleting"))


COLUMNS = ListColumns(
    {
        "name": plain("name", "TOPIC"),
        "partitions": plain("partitions"),
        "replication_factor": plain("replication_factor", "REPLICAS"),
        "records": plain("records"),
        "size_bytes": size("size_bytes", "SIZE"),
        "disk_bytes": size("disk_bytes", "ON DISK"),
        "records_in_rate": plain("records_in_rate", "RECORDS/S"),
        "bytes_in_rate": rate("bytes_in_rate", "IN"),
        "bytes_out_rate": rate("bytes_out_rate", "OUT"),
        "retention_ms": duration("retention_ms", "RETENTION"),
        "retention_bytes": size("retention_bytes", "RETENTION SIZE"),
        "cleanup_policy": plain("cleanup_policy", "CLEANUP"),
        "min_insync_replicas": plain("min_insync_replicas", "MIN ISR"),
        "groups": plain("groups"),
        "health": ListColumn("HEALTH", _health, ("health",)),
        "offline_partitions": plain("offline_partitions", "OFFLINE"),
        "under_replicated_partitions": plain("under_replicated_partitions", "UNDER-REPLICATED"),
        "under_min_isr_partitions": plain("under_min_isr_partitions", "UNDER MIN ISR"),
        "is_internal": plain("is_internal", "INTERNAL"),
        "topic_id": plain("topic_id", "ID"),
    },
    default=(
        "name",
        "partitions",
        "replication_factor",
        "records",
        "size_bytes",
        "bytes_in_rate",
        "bytes_out_rate",
        "retention_ms",
        "cleanup_policy",
        "groups",
        "health",
    ),
    example="size_bytes>1000000,health!=healthy",
)

SUBCOMMANDS = {
    "config": Subcommand("commands.topic_config", "Topic settings: get, set, remove."),
    "export": Subcommand("transfer.topic_export", "Export records to a file."),
    "import": Subcommand("transfer.topic_import", "Import records from a file."),
    "copy": Subcommand("transfer.topic_copy", "Copy records to another topic."),
    "delete-records": Subcommand("commands.topic_records", "Delete the oldest records of a topic."),
    "shrink": Subcommand("commands.topic_shrink", "Create a plan that removes partitions."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Administer, export, import and copy topics."""


@command.command("list")
@click.option("--search", metavar="TEXT", help="Only names that contain this text.")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@COLUMNS.options
@with_session
def list_topics(session: Session, search: str | None, internal: bool, options: ListOptions) -> None:
    """List topics, with their size, load, retention and health.

    \b
    kreplica topic list --sort -size_bytes --limit 10
    kreplica topic list --filter 'health!=healthy' --fields name,health,offline_partitions
    """
    document = COLUMNS.fetch(session, "/v1/topics", "topics", options, {"search": search, "internal": internal})

    def print_topics(screen: Screen, document: dict[str, Any]) -> None:
        COLUMNS.print(screen, document["topics"], options, empty_text="No topics match.")
        print_problems(screen, document)

    session.show(document, print_topics)


def _remarks(topic: dict[str, Any]) -> str:
    remarks = (("internal", topic["is_internal"]), ("being deleted", topic["deleting"]))
    return ", ".join(text for text, applies in remarks if applies)


@command.command("show")
@_TOPIC
@with_session
def show_topic(session: Session, topic: str) -> None:
    """Show a topic and its partitions.

    With --json, the partitions are not printed; list them with `kreplica partition list --topic`.
    """
    path = path_of("topics", topic)
    document = session.run_with_client(lambda client: _fetch_topic(client, path, with_partitions=not session.as_json))
    session.show(document, _print_topic)


async def _fetch_topic(client: RestClient, path: str, *, with_partitions: bool) -> dict[str, Any]:
    document: dict[str, Any] = await client.get(path)
    if with_partitions:
        document["rows"] = (await client.get_list(f"{path}/partitions", "partitions", PAGE))["partitions"]
    return document


def _print_topic(screen: Screen, topic: dict[str, Any]) -> None:
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
    screen.table(PARTITION_COLUMNS[1:], [row[1:] for row in partition_rows(topic["rows"])], empty_text="No partitions.")


@command.command()
@_TOPIC
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Number of partitions.  [default: num.partitions of the broker]"
)
@click.option("--replication-factor", type=click.IntRange(min=1),
              help="Replicas per partition.  [default: default.replication.factor of the broker]")  # fmt: skip
@click.option("--assign", "assignments", multiple=True, type=Assignment(),
              help="Replicas of one partition, preferred leader first, for example 0=1,2,3; repeat for each "
              "partition, starting with 0.")  # fmt: skip
@click.option(
    "--config", "configs", multiple=True, type=KafkaSetting(), help="A topic setting, for example retention.ms=2d."
)
@dry_run_option
@with_session
def create(
    session: Session,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: tuple[tuple[int, list[int]], ...],
    configs: tuple[tuple[str, str], ...],
    dry_run: bool,
) -> None:
    """Create a topic.

    \b
    kreplica topic create orders --partitions 6 --replication-factor 3
    kreplica topic create audit --assign 0=1,2 --assign 1=2,3 --config cleanup.policy=compact
    """
    if assignments and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--assign cannot be combined with --partitions or --replication-factor")
    body = {
        "name": topic,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "assignment": {str(number): brokers for number, brokers in assignments},
        "configs": dict(configs),
    }
    body_without_defaults = {name: value for name, value in body.items() if value not in (None, {})}
    document = session.send("POST", "/v1/topics", body_without_defaults, query={"dry_run": dry_run})
    session.show_write(document, _print_created)


def _print_created(screen: Screen, created: dict[str, Any]) -> None:
    partitions, replicas = (
        count_text(created["partitions"], "partition"),
        count_text(created["replication_factor"], "replica"),
    )
    screen.line(f"Created topic {created['name']} with {partitions} of {replicas}.")
    _warn_if_leaderless(screen, created)


def _warn_if_leaderless(screen: Screen, created: dict[str, Any]) -> None:
    if not created["led"]:
        screen.line(f"Some partitions have no leader yet; check with kreplica topic show {created['name']}", "bold")


@command.command()
@_TOPIC
@_PARTITIONS
@dry_run_option
@with_session
def grow(session: Session, topic: str, partitions: int, dry_run: bool) -> None:
    """Add partitions to a topic, up to a total of PARTITIONS.

    Existing records stay in their partitions; new records with the same key may be written to another partition.
    """
    body = {"partitions": partitions}
    document = session.send("PATCH", path_of("topics", topic), body, query={"dry_run": dry_run})
    session.show_write(document, _print_grown)


def _print_grown(screen: Screen, grown: dict[str, Any]) -> None:
    screen.line(f"Topic {grown['name']} now has {count_text(grown['partitions'], 'partition')}.")
    _warn_if_leaderless(screen, grown)


@command.command()
@_TOPIC
@yes_option
@dry_run_option
@with_session
def delete(session: Session, topic: str, yes: bool, dry_run: bool) -> None:
    """Delete a topic and all its records."""
    if not dry_run:
        confirm(f"Delete topic {topic} and all its records?", yes=yes, session=session)
    document = session.send("DELETE", path_of("topics", topic), query={"dry_run": dry_run})
    session.show_write(document, lambda screen, response: screen.line(
        f"Topic {topic} was deleted." if response["deleted"] else f"Topic {topic} is being deleted."
    ))  # fmt: skip
