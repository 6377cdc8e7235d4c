"""``kreplica plan make``: preview of a plan, confirmation, and progress until the plan ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from kreplica.cli.http.rest import RestClient
from kreplica.cli.http.session import Session, confirm, dry_run_option, print_writes, with_session, yes_option
from kreplica.cli.plans.views import print_preview
from kreplica.cli.plans.watch import watch
from kreplica.cli.terminal.parameter_types import Duration, Replicas, Size
from kreplica.cli.terminal.running import interruptible
from kreplica.cli.terminal.screen import Screen
from kreplica.errors import reason_of

FILE_SIZE_MAX = 64 * 1024 * 1024

REMOVAL_WAIT_HELP = (
    "How long the partitions stay readable before they are deleted, for example 10m.  "
    "[default: kreplica.partition.removal.wait.ms of the controller]"
)

_BROKERS = click.argument("brokers", nargs=-1, required=True, type=click.IntRange(min=0), metavar="BROKER...")

_OPTIONS = (
    click.option("--throttle", type=Size(), metavar="BYTES", help="Replication throttle in bytes/s, such as 50MB."),
    click.option("--moves-at-once", type=click.IntRange(min=1),
                 help="Concurrent moves per broker.  [default: 5]"),
    click.option("--force", is_flag=True, help="Continue even if acknowledged records may be lost."),
    click.option("--comment", help="A note, shown with the plan."),
    click.option("--detach", is_flag=True, help="Do not wait for the plan to end."),
    yes_option,
    dry_run_option,
)  # fmt: skip


@click.group()
def command() -> None:
    """Create a plan: preview it, confirm, then follow its progress.

    Ctrl-C ends this command, but not the plan.  --json requires --dry-run or --yes: it prints the response of the
    admin API, without confirmation or progress.
    """


def plan_options(request_of: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Turn a function that returns the request body of one plan kind into a command that creates the plan."""

    @wraps(request_of)
    def run(session: Session, **arguments: Any) -> None:
        common = {name: arguments.pop(name) for name in _COMMON_OPTION_NAMES}
        raise SystemExit(create_plan(session, request_of(**arguments), **common))

    command = with_session(run)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_COMMON_OPTION_NAMES = ("throttle", "moves_at_once", "force", "comment", "detach", "yes", "dry_run")


def create_plan(
    session: Session,
    request: dict[str, Any],
    *,
    throttle: int | None,
    moves_at_once: int | None,
    force: bool,
    comment: str | None,
    detach: bool,
    yes: bool,
    dry_run: bool,
) -> int:
    """Create the requested plan and follow it, or only preview it.

    :param request: request body without the common options of plans.
    :return: the exit status.
    """
    common = {"throttle_bytes_per_second": throttle, "moves_at_once": moves_at_once, "force": force or None,
              "comment": comment}  # fmt: skip
    body = {**request, **{name: value for name, value in common.items() if value is not None}}
    if session.as_json and not dry_run:
        confirm("", yes=yes, session=session)
    return session.run_with_client(
        lambda client: _preview_and_create(session, client, body, detach=detach, yes=yes, dry_run=dry_run)
    )


async def _preview_and_create(
    session: Session, client: RestClient, body: dict[str, Any], *, detach: bool, yes: bool, dry_run: bool
) -> int:
    if session.as_json:
        document = (await client.send("POST", "/v1/plans", body, query={"dry_run": dry_run})).document
        click.echo(json.dumps(document, indent=2))
        return 0
    screen = Screen()
    preview = (await client.send("POST", "/v1/plans", body, query={"dry_run": True})).document
    print_preview(screen, preview)
    if dry_run:
        screen.line("Nothing was changed (--dry-run).  Writes to ZooKeeper:")
        print_writes(screen, preview["znodes"])
        return 0
    if not preview["moves_count"]:
        screen.line("No moves are necessary.")
        return 0
    with interruptible():
        confirm("Proceed?", yes=yes, session=session)
    document = (await client.send("POST", "/v1/plans", body)).document
    plan = document.get("plan", document)
    screen.line(f"Created plan {plan['id']}.")
    return 0 if detach else await watch(session, client, plan["id"])


@command.command()
@click.argument("moves", nargs=-1, type=Replicas(), metavar="[TOPIC:PARTITION=BROKERS]...")
@click.option("--file", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Read the assignments from a JSON file in the format of kafka-reassign-partitions.")  # fmt: skip
@plan_options
def reassign(moves: tuple[tuple[str, int, list[int]], ...], path: Path | None) -> dict[str, Any]:
    """Assign the replicas of partitions to brokers, preferred leader first.

    \b
    kreplica plan make reassign orders:0=1,2 orders:1=2,3 --throttle 50MB
    """
    from_file = [] if path is None else _read_rows(path, "partitions", ("topic", "partition", "replicas"))
    assignments = [*_assignments(moves), *from_file]
    if not assignments:
        raise click.UsageError("specify partitions and their brokers, for example orders:0=1,2, or --file")
    return {"kind": "reassign", "assignments": assignments}


def _assignments(moves: tuple[tuple[str, int, list[int]], ...]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in moves]


def _read_rows(path: Path, member: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Read the list ``member`` of a JSON file, and return the fields ``names`` of each of its objects."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(FILE_SIZE_MAX))
        return [{name: row[name] for name in names} for row in document[member]]
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {reason_of(error)}") from None
    except (ValueError, KeyError, TypeError) as error:
        expected = ", ".join(f'"{name}"' for name in names)
        raise click.BadParameter(f'{path}: expected {{"{member}": [{{{expected}}}, ...]}} ({error!r})') from None


@command.command("replication-factor")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.argument("replication_factor", type=click.IntRange(min=1), metavar="REPLICAS")
@plan_options
def replication_factor(topics: tuple[str, ...], replication_factor: int) -> dict[str, Any]:
    """Change the replication factor of topics."""
    return {"kind": "replication_factor", "topics": list(topics), "replication_factor": replication_factor}


@command.command("add-brokers")
@_BROKERS
@plan_options
def add_brokers(brokers: tuple[int, ...]) -> dict[str, Any]:
    """Move replicas to the new brokers BROKER..., so that all brokers have an equal share."""
    return {"kind": "add_brokers", "brokers": list(brokers)}


@command.command()
@_BROKERS
@plan_options
def drain(brokers: tuple[int, ...]) -> dict[str, Any]:
    """Move all replicas off the given brokers and cordon them."""
    return drain_request(brokers)


def drain_request(brokers: tuple[int, ...]) -> dict[str, Any]:
    """Return the request body for a plan that drains brokers."""
    return {"kind": "drain", "brokers": list(brokers)}


@command.command()
@click.option("--topic", "topics", multiple=True, help="Only replicas of this topic; may be repeated.")
@click.option("--weights", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="JSON file with partition weights, which are balanced instead of replica counts.")  # fmt: skip
@plan_options
def rebalance(topics: tuple[str, ...], weights: Path | None) -> dict[str, Any]:
    """Balance the number of replicas per broker.

    The plan moves as little data as possible.  With --weights, it balances the sum of weights per broker instead.  The
    file contains {"weights": [{"topic", "partition", "weight"}, ...]}.  `kreplica pipeline profile --plan` creates such
    a plan from measured weights.
    """
    members: dict[str, Any] = {"topics": list(topics)} if topics else {}
    if weights is not None:
        members["weights"] = _read_rows(weights, "weights", ("topic", "partition", "weight"))
    return {"kind": "rebalance", **members}


@command.command("add-partitions")
@click.argument("topic")
@click.argument("partitions", type=click.IntRange(min=1))
@plan_options
def add_partitions(topic: str, partitions: int) -> dict[str, Any]:
    """Add partitions to a topic, up to a total of PARTITIONS."""
    return {"kind": "add_partitions", "topic": topic, "partitions": partitions}


@command.command("remove-partitions")
@click.argument("topic")
@click.argument("partitions", type=click.IntRange(min=1))
@click.option("--wait", "wait_ms", type=Duration(), metavar="DURATION",
              help=REMOVAL_WAIT_HELP)
@plan_options
def remove_partitions(topic: str, partitions: int, wait_ms: int | None) -> dict[str, Any]:
    """Remove the last partitions of a topic, so that PARTITIONS remain.

    The removed partitions stay readable, but not writable, for the --wait period; then they are deleted.  Records
    that consumers have not read by then are lost.
    """
    return removal_request(topic, partitions, wait_ms)


def removal_request(topic: str, partitions: int, wait_ms: int | None) -> dict[str, Any]:
    """Return the request body for a plan that removes partitions."""
    members = {} if wait_ms is None else {"wait_ms": wait_ms}
    return {"kind": "remove_partitions", "topic": topic, "partitions": partitions, **members}
