"""``kreplica acl``: access control lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.http.list_options import limit_option
from kreplica.cli.http.session import PAGE, Session, confirm, dry_run_option, path_of, with_session, yes_option
from kreplica.cli.terminal.access_types import NamedResource, Operation, Operations, PrincipalName, ResourceName
from kreplica.cli.terminal.running import interruptible
from kreplica.cli.terminal.screen import Screen, count_text

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient

_PERMISSION = click.option(
    "--permission", type=click.Choice(["allow", "deny"]), help="Only ACLs that allow, or only ACLs that deny."
)
_PRINCIPAL = click.option(
    "--principal", type=PrincipalName(), help="Only ACLs of this principal, for example User:alice."
)
_OPERATION = click.option("--operation", type=Operation(), help="Only ACLs for this operation.")
_HOST = click.option("--host", metavar="ADDRESS", help="Only ACLs for this client address.")


@click.group()
def command() -> None:
    """Access control lists: the operations that users may perform on resources.

    A RESOURCE is a topic, or topic:NAME, group:NAME, transactional-id:NAME, user:NAME, or cluster. The name * means
    all.
    """


@command.command("list", short_help="List all ACLs, or those of a resource.")
@click.argument("resource", type=ResourceName(), required=False)
@_PRINCIPAL
@_OPERATION
@_PERMISSION
@_HOST
@limit_option
@with_session
def list_acls(session: Session, resource: NamedResource | None, limit: int | None, **filters: Any) -> None:
    """List the ACLs that apply to RESOURCE, including wildcards and prefixes; by default all ACLs."""
    query = {**PAGE, **filters}
    if resource is not None:
        query |= {"resource_type": resource.type, "resource_name": resource.name, "pattern_type": "match"}
    session.show(session.get_all(path_of("acls"), "acls", query, limit), _print_acls)


def _print_acls(screen: Screen, document: dict[str, Any]) -> None:
    columns = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    screen.table(columns, [[each[name] for name in names] for each in document["acls"]], empty_text="No ACLs.")


@command.command()
@click.argument("principal", type=PrincipalName())
@click.argument("operations", type=Operations(), metavar="OPERATION,...")
@click.argument("resource", type=ResourceName())
@click.option("--prefixed", is_flag=True, help="Apply to all resources whose names start with that of RESOURCE.")
@click.option("--deny", is_flag=True, help="Deny the operations; ACLs that deny take precedence.")
@click.option("--host", default="*", show_default=True, metavar="ADDRESS", help="Apply to clients with this address.")
@dry_run_option
@with_session
def create(
    session: Session,
    principal: str,
    operations: list[str],
    resource: NamedResource,
    *,
    prefixed: bool,
    deny: bool,
    host: str,
    dry_run: bool,
) -> None:
    """Allow PRINCIPAL to perform the operations on RESOURCE.

    \b
    kreplica acl create User:alice Read,Write orders
    """
    row = {
        "resource_type": resource.type,
        "resource_name": resource.name,
        "pattern_type": "prefixed" if prefixed else "literal",
        "principal": principal,
        "host": host,
        "permission": "deny" if deny else "allow",
    }
    body = {"acls": [{**row, "operation": operation} for operation in operations]}
    document = session.send("POST", path_of("acls"), body, query={"dry_run": dry_run})
    session.show_write(document, _print_acls)


@command.command(short_help="Delete the ACLs that match all filters.")
@click.argument("resource", type=ResourceName(), required=False)
@_PRINCIPAL
@_OPERATION
@_PERMISSION
@_HOST
@click.option("--prefixed", is_flag=True, help="Delete the prefixed ACLs of RESOURCE instead of the literal ones.")
@yes_option
@dry_run_option
@with_session
def delete(
    session: Session, resource: NamedResource | None, *, prefixed: bool, yes: bool, dry_run: bool, **filters: Any
) -> None:
    """Delete the ACLs that match RESOURCE and all filters; at least one of them is required."""
    query: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
    if resource is not None:
        query |= {"resource_type": resource.type, "resource_name": resource.name}
    if not query:
        raise click.UsageError("specify a RESOURCE, --principal or another filter")
    if resource is not None or prefixed:
        query["pattern_type"] = "prefixed" if prefixed else "literal"

    async def change(client: RestClient) -> Any:
        if not dry_run and not yes:
            acls = (await client.get_list(path_of("acls"), "acls", {**PAGE, **query}))["acls"]
            if acls:
                _print_acls(Screen(), {"acls": acls})
            with interruptible():
                confirm(f"Delete {count_text(len(acls), 'ACL')}?", yes=yes, session=session)
        return (await client.send("DELETE", path_of("acls"), query={**query, "dry_run": dry_run})).document

    document = session.run_with_client(change)
    session.show_write(
        document, lambda screen, deleted: screen.line(f"Deleted {count_text(len(deleted['acls']), 'ACL')}.")
    )
