"""``kreplica user``: users with SCRAM credentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.http.credentials import read_password
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
from kreplica.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_NAME = click.argument("name")
_MECHANISM = click.option(
    "--mechanism", type=click.Choice(MECHANISMS), default="SCRAM-SHA-512", show_default=True, help="SASL mechanism."
)
_ITERATIONS = click.option(
    "--iterations", type=click.IntRange(4096, 16384), help="Number of key derivation iterations."
)
_NEW_PASSWORD = click.option(
    "--new-password-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File with the new password on its first line; - is standard input. Without it, the command prompts for one.",
)


@click.group()
def command() -> None:
    """Users with SCRAM credentials, for SASL and for the admin API.

    Passwords are read from a file, from standard input or from the terminal, never from the command line, which other
    users of the machine can see.
    """


@command.command("list")
@limit_option
@with_session
def list_users(session: Session, limit: int | None) -> None:
    """List the users and their mechanisms."""
    session.show(session.get_all(path_of("users"), "users", PAGE, limit), _print_users)


def _print_users(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (user["user"], each["mechanism"], each["iterations"])
        for user in document["users"]
        for each in user["mechanisms"]
    ]
    screen.table(("USER", "MECHANISM", "ITERATIONS"), rows, empty_text="No users.")


@command.command()
@_NAME
@_NEW_PASSWORD
@_MECHANISM
@_ITERATIONS
@dry_run_option
@with_session
def create(session: Session, name: str, **options: Any) -> None:
    """Create the user NAME with a password."""
    fault = f"user {name!r} already exists\nUse `kreplica user password` to change the password."
    _set_password(session, name, "was created", **options, must_exist=False, fault=fault)


@command.command()
@_NAME
@_NEW_PASSWORD
@_MECHANISM
@_ITERATIONS
@dry_run_option
@with_session
def password(session: Session, name: str, **options: Any) -> None:
    """Change the password of the user NAME."""
    fault = f"user {name!r} does not exist\nUse `kreplica user create` to create the user."
    _set_password(session, name, "has a new password", **options, must_exist=True, fault=fault)


@command.command()
@_NAME
@click.option("--mechanism", type=click.Choice(MECHANISMS), help="Delete only the credentials of this mechanism.")
@yes_option
@dry_run_option
@with_session
def delete(session: Session, name: str, *, mechanism: str | None, yes: bool, dry_run: bool) -> None:
    """Delete the credentials of the user NAME; ACLs remain."""
    if not dry_run:
        confirm(f"Delete the credentials of user {name}?", yes=yes, session=session)
    document = session.send("DELETE", path_of("users", name), query={"mechanism": mechanism, "dry_run": dry_run})
    session.show_write(document, lambda screen, _: screen.line(f"The credentials of user {name} were deleted."))


def _set_password(
    session: Session,
    name: str,
    outcome: str,
    *,
    new_password_file: Path | None,
    mechanism: str,
    iterations: int | None,
    dry_run: bool,
    must_exist: bool,
    fault: str,
) -> None:
    """Set a password.

    :param must_exist: True if the user must exist, False if it must not.
    :param fault: error message if ``must_exist`` is not met.
    """
    body: dict[str, Any] = {"password": _new_password(name, new_password_file), "mechanism": mechanism}
    if iterations is not None:
        body["iterations"] = iterations

    async def change(client: RestClient) -> Any:
        users = (await client.get_list(path_of("users"), "users", PAGE))["users"]
        if any(user["user"] == name for user in users) != must_exist:
            raise CommandFailed(fault)
        return (await client.send("PUT", path_of("users", name), body, query={"dry_run": dry_run})).document

    document = session.run_with_client(change)
    session.show_write(document, lambda screen, _: screen.line(f"User {name} {outcome} ({mechanism})."))


def _new_password(name: str, path: Path | None) -> str:
    if path is not None:
        return read_password(path)
    if not sys.stdin.isatty():
        raise click.UsageError("--new-password-file is required if standard input is not a terminal")
    prompt = f"New password for {name}"
    return str(click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True))
