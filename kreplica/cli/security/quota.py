"""``kreplica quota``: quotas of users, client IDs and IP addresses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.http.list_options import limit_option
from kreplica.cli.http.session import (
    PAGE,
    CommandFailed,
    Session,
    confirm,
    dry_run_option,
    path_of,
    with_session,
    yes_option,
)
from kreplica.cli.terminal.running import interruptible
from kreplica.cli.terminal.screen import Screen, problem_text, seconds_text, time_text

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient

    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic in older versions of click

DEFAULT = "<default>"
"""Name of the default entity: all users, client IDs or IP addresses that have no quota of their own."""

NAMES = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
Entity = dict[str, str]


class EntityName(ParameterType):
    """An entity with quotas: ``user:alice``, ``client-id:app``, ``user:alice,client-id:app``, ``ip:192.0.2.1``.

    ``users``, ``client-ids`` and ``ips`` are the defaults for all that have no quota of their own.
    """

    name = "entity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Entity:
        if isinstance(value, dict):
            return value
        address = re.fullmatch(r"ips|ip:(.+)", value)
        if address is not None:
            return {"ip": address[1] or DEFAULT}
        match = re.fullmatch(r"(users|user:(.+?))?(?:(?:^|,)(client-ids|client-id:(.+)))?", value)
        if match is None or not value:
            self.fail(f"{value!r}: expected user:NAME, client-id:ID, user:NAME,client-id:ID or ip:ADDRESS", param, ctx)
        entity = {"user": match[2] or DEFAULT} if match[1] else {}
        return {**entity, "client_id": match[4] or DEFAULT} if match[3] else entity


class QuotaValue(ParameterType):
    """A quota and its value: ``producer_byte_rate=1000``."""

    name = "quota"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        name, equals, number = value.partition("=")
        if name not in NAMES:
            self.fail(f"{name!r}: expected one of {', '.join(NAMES)}", param, ctx)
        try:
            return name, float(number) if "." in number or not equals else int(number)
        except ValueError:
            self.fail(f"{value!r}: expected QUOTA=NUMBER, such as {name}=1000", param, ctx)


@click.group()
def command() -> None:
    """Quotas for users, client IDs and IP addresses, which each broker enforces separately.

    An ENTITY is user:NAME, client-id:ID, user:NAME,client-id:ID or ip:ADDRESS. The entities 'users', 'client-ids' and
    'ips' set the defaults for those that have no quota of their own. Clients that exceed a quota are slowed down.
    """


@command.command("list")
@click.option("--throttled", is_flag=True, help="List the clients that were throttled in the last hour.")
@limit_option
@with_session
def list_quotas(session: Session, *, throttled: bool, limit: int | None) -> None:
    """List the quotas."""
    if throttled:
        document = session.get(path_of("throttled-clients"))
        session.show({**document, "clients": document["clients"][:limit]}, _print_throttled)
    else:
        session.show(session.get_all(path_of("quotas"), "quotas", PAGE, limit), _print_quotas)


def _print_quotas(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (each["user"] or "", each["client_id"] or "", each["ip"] or "", name, f"{value:,.15g}")
        for each in document["quotas"]
        for name, value in each["quotas"].items()
    ]
    screen.table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows, empty_text="No quotas.")


def _print_throttled(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (
            each["broker_id"],
            each["user"] or "",
            each["client_id"] or "",
            each["address"],
            each["quota"],
            each["count"],
            seconds_text(each["throttled_ms"] / 1000),
            time_text(each["last_at_ms"]),
        )
        for each in document["clients"]
    ]
    columns = ("BROKER", "USER", "CLIENT ID", "ADDRESS", "QUOTA", "TIMES", "THROTTLED FOR", "LAST")
    screen.table(columns, rows, empty_text="No clients were throttled in the last hour.")
    for problem in document["problems"]:
        screen.line(problem_text(problem))


@command.command("set")
@click.argument("entity", type=EntityName())
@click.argument("quotas", nargs=-1, required=True, type=QuotaValue(), metavar="QUOTA=NUMBER...")
@dry_run_option
@with_session
def set_quotas(session: Session, entity: Entity, quotas: tuple[tuple[str, float], ...], *, dry_run: bool) -> None:
    """Set quotas for one entity.

    \b
    kreplica quota set user:alice producer_byte_rate=1048576

    The quotas are producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate for users and
    client IDs, and connection_creation_rate for IP addresses.
    """
    body = {**entity, "quotas": dict(quotas)}
    document = session.send("PATCH", path_of("quotas"), body, query={"dry_run": dry_run})
    session.show_write(document, _print_changed)


@command.command()
@click.argument("entity", type=EntityName())
@click.argument("quotas", nargs=-1, type=click.Choice(NAMES), metavar="[QUOTA]...")
@yes_option
@dry_run_option
@with_session
def delete(session: Session, entity: Entity, quotas: tuple[str, ...], *, yes: bool, dry_run: bool) -> None:
    """Delete quotas for one entity; by default, all of them."""
    quota_names = ", ".join(quotas) or "all quotas"

    async def change(client: RestClient) -> Any:
        names = quotas
        if not names:
            found = (await client.get_list(path_of("quotas"), "quotas", PAGE))["quotas"]
            parts = ("user", "client_id", "ip")
            names = next(
                (tuple(row["quotas"]) for row in found if all(row[part] == entity.get(part) for part in parts)), ()
            )
            if not names:
                raise CommandFailed(f"{entity_text(entity)} has no quotas")
        if not dry_run:
            with interruptible():
                confirm(f"Delete {quota_names} of {entity_text(entity)}?", yes=yes, session=session)
        body = {**entity, "quotas": dict.fromkeys(names)}
        return (await client.send("PATCH", path_of("quotas"), body, query={"dry_run": dry_run})).document

    session.show_write(session.run_with_client(change), _print_changed)


def entity_text(entity: Entity) -> str:
    """Return an entity in words: ``user alice and client ID app``."""
    words = {"user": ("user", "users"), "client_id": ("client ID", "client IDs"), "ip": ("IP address", "IP addresses")}
    return " and ".join(
        f"all {words[part][1]} without a quota of their own" if name == DEFAULT else f"{words[part][0]} {name}"
        for part, name in entity.items()
    )


def _print_changed(screen: Screen, document: dict[str, Any]) -> None:
    entity = {part: document[part] for part in ("user", "client_id", "ip") if document[part] is not None}
    quotas = ", ".join(f"{name}={value:.15g}" for name, value in document["quotas"].items())
    screen.line(f"Quotas of {entity_text(entity)}: {quotas or 'none'}.")
