"""``kreplica token``: delegation tokens."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from kreplica.cli.security.user import MECHANISMS
from kreplica.cli.terminal.access_types import PrincipalName
from kreplica.cli.terminal.parameter_types import Duration
from kreplica.cli.terminal.screen import Screen, time_text

_TOKEN = click.argument("token_id", metavar="TOKEN")


@click.group()
def command() -> None:
    """Delegation tokens: credentials for jobs, with the permissions of a user and a limited lifetime.

    A client authenticates with SCRAM: the token ID is its user name, and the token's HMAC is its password.
    """


@command.command("list")
@click.option("--owner", type=PrincipalName(), help="Only tokens that this principal owns, created, or may renew.")
@limit_option
@with_session
def list_tokens(session: Session, owner: str | None, limit: int | None) -> None:
    """List the tokens, and when they expire."""
    query = PAGE if owner is None else {**PAGE, "owner": owner}
    session.show(session.get_all(path_of("tokens"), "tokens", query, limit), _print_tokens)


def _print_tokens(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (
            each["token_id"],
            each["owner"],
            each["requester"],
            each["renewers"],
            time_text(each["expires_ms"]),
            time_text(each["max_ms"]),
        )
        for each in document["tokens"]
    ]
    columns = ("TOKEN", "OWNER", "REQUESTER", "RENEWERS", "EXPIRES", "RENEWABLE UNTIL")
    screen.table(columns, rows, empty_text="No tokens.", prose=())


@command.command()
@click.option("--owner", type=PrincipalName(),
              help="User whose permissions the token has; by default, the user of this command.")  # fmt: skip
@click.option("--renewer", "renewers", type=PrincipalName(), multiple=True,
              help="User who may renew the token; may be repeated.")  # fmt: skip
@click.option("--max-lifetime", type=Duration(),
              help="Time after which the token can no longer be renewed, for example 12h or 7d.")  # fmt: skip
@click.option(
    "--client-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the settings of a client to this new file, readable only by you, instead of printing the secret.",
)
@click.option(
    "--mechanism", type=click.Choice(MECHANISMS), default="SCRAM-SHA-512", show_default=True, help="SASL mechanism."
)
@dry_run_option
@with_session
def create(
    session: Session,
    *,
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime: int | None,
    client_config: Path | None,
    mechanism: str,
    dry_run: bool,
) -> None:
    """Create a token. Its secret is printed only once."""
    options = {"owner": owner, "renewers": list(renewers) or None, "max_lifetime_ms": max_lifetime}
    body = {name: value for name, value in options.items() if value is not None}
    if client_config is None or dry_run:
        session.show_write(_create(session, body, dry_run=dry_run), _print_token)
        return
    descriptor = _new_file(client_config)  # opened first: the secret of a created token cannot be read again
    try:
        document = _create(session, body, dry_run=dry_run)
    except BaseException:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            client_config.unlink()
        raise
    with os.fdopen(descriptor, "w") as file:
        file.write(_settings(document["token_id"], document.pop("hmac"), mechanism))
    session.show_write(document, _print_token)


def _create(session: Session, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    document: dict[str, Any] = session.send("POST", path_of("tokens"), body, query={"dry_run": dry_run})
    return document


def _new_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be created: {error.strerror}") from None


def _settings(token_id: str, hmac: str, mechanism: str) -> str:
    from kreplica.security.tokens.token import client_config

    return "".join(f"{name}={value}\n" for name, value in client_config(token_id, hmac, mechanism).items())


def _print_token(screen: Screen, document: dict[str, Any]) -> None:
    screen.pairs(
        (
            ("token", document["token_id"]),
            ("hmac", document.get("hmac")),
            ("owner", document["owner"]),
            ("renewers", document["renewers"] or None),
            ("expires", time_text(document["expires_ms"])),
            ("renewable until", time_text(document["max_ms"])),
        )
    )


@command.command()
@_TOKEN
@click.option("--period", type=Duration(), help="Validity period, starting now; by default, the brokers' setting.")
@dry_run_option
@with_session
def renew(session: Session, token_id: str, *, period: int | None, dry_run: bool) -> None:
    """Extend the validity of the token whose ID is TOKEN."""
    body = {} if period is None else {"period_ms": period}
    document = session.send("POST", path_of("tokens", token_id, "renew"), body, query={"dry_run": dry_run})
    session.show_write(document, _print_token)


@command.command()
@_TOKEN
@click.option("--after", type=Duration(), help="Let the token expire after this time instead of deleting it.")
@yes_option
@dry_run_option
@with_session
def expire(session: Session, token_id: str, *, after: int | None, yes: bool, dry_run: bool) -> None:
    """Delete the token whose ID is TOKEN, or let it expire after a given time."""
    if after is None and not dry_run:
        confirm(f"Delete token {token_id}?", yes=yes, session=session)
    body = {} if after is None else {"period_ms": after}
    document = session.send("POST", path_of("tokens", token_id, "expire"), body, query={"dry_run": dry_run})

    def describe(screen: Screen, changed: dict[str, Any]) -> None:
        if after is None:
            screen.line(f"Token {token_id} was deleted.")
        else:
            _print_token(screen, changed)

    session.show_write(document, describe)
