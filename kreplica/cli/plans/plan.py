"""``kreplica plan``: plans that move, add and remove replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.http.session import Session, confirm, dry_run_option, path_of, with_session, yes_option
from kreplica.cli.plans.views import drained_text, print_moves, print_plan, print_plans
from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.cli.terminal.parameter_types import Size
from kreplica.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient

_PLAN = click.argument("plan")

SUBCOMMANDS = {
    "make": Subcommand("plans.make", "Create a plan: one subcommand per kind."),
    "watch": Subcommand("plans.watch", "Follow the progress of a plan until it ends."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Reassignment plans.  The controller executes a plan even after the command that created it has exited."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Maximum number of plans.")
@with_session
def list_plans(session: Session, limit: int) -> None:
    """List plans, newest first, including those that have ended."""
    session.show(session.get("/v1/plans", {"limit": limit}), print_plans)


@command.command("show")
@_PLAN
@click.option("--moves", is_flag=True, help="Also show the moves; with --json, show only the moves.")
@with_session
def show_plan(session: Session, plan: str, moves: bool) -> None:
    """Show a plan."""

    async def fetch(client: RestClient) -> tuple[dict[str, Any], dict[str, Any], str | None]:
        document = await client.get(path_of("plans", plan))
        rows = await client.get_list(path_of("plans", plan, "moves"), "moves") if moves else {}
        return document, rows, None if session.as_json else await drained_text(client, document)

    def print_plan_and_moves(screen: Screen, _: object) -> None:
        print_plan(screen, document)
        if drained is not None:
            screen.line(drained)
        if moves:
            screen.line()
            print_moves(screen, rows["moves"])

    document, rows, drained = session.run_with_client(fetch)
    session.show(rows if moves else document, print_plan_and_moves)


@command.command("set")
@_PLAN
@click.option(
    "--throttle",
    type=Size(),
    metavar="BYTES",
    help="Replication throttle for the plan's moves in bytes/s, for example 50MB.",
)
@click.option("--no-throttle", is_flag=True, help="Remove the throttle.")
@click.option("--moves-at-once", type=click.IntRange(min=1), help="Concurrent moves per broker.")
@dry_run_option
@with_session
def change_plan(
    session: Session, plan: str, throttle: int | None, no_throttle: bool, moves_at_once: int | None, dry_run: bool
) -> None:
    """Change the throttle or concurrency of a running plan."""
    body: dict[str, Any] = {}
    if throttle is not None and no_throttle:
        raise click.UsageError("--throttle and --no-throttle cannot be combined")
    if throttle is not None or no_throttle:
        body["throttle_bytes_per_second"] = throttle
    if moves_at_once is not None:
        body["moves_at_once"] = moves_at_once
    if not body:
        raise click.UsageError("specify --throttle, --no-throttle or --moves-at-once")
    document = session.send("PATCH", path_of("plans", plan), body, query={"dry_run": dry_run})
    session.show_write(document, lambda screen, _: screen.line(f"Plan {plan} was changed."))


@command.command()
@_PLAN
@click.option("--rollback", is_flag=True, help="Also revert finished moves.")
@yes_option
@dry_run_option
@with_session
def cancel(session: Session, plan: str, rollback: bool, yes: bool, dry_run: bool) -> None:
    """Cancel a plan and revert its running moves; finished moves are kept unless --rollback is given."""
    if not dry_run:
        confirm(f"Cancel plan {plan}{' and revert its finished moves' if rollback else ''}?", yes=yes,
                session=session)  # fmt: skip
    document = session.send("POST", path_of("plans", plan, "cancel"), {"rollback": rollback},
                            query={"dry_run": dry_run})  # fmt: skip
    session.show_write(document, lambda screen, _: screen.line(
        f"Plan {plan} is being cancelled.  Follow it with kreplica plan watch {plan}."
    ))  # fmt: skip


@command.command()
@_PLAN
@dry_run_option
@with_session
def delete(session: Session, plan: str, dry_run: bool) -> None:
    """Delete a plan that has ended."""
    document = session.send("DELETE", path_of("plans", plan), query={"dry_run": dry_run})
    session.show_write(document, lambda screen, _: screen.line(f"Plan {plan} was deleted."))
