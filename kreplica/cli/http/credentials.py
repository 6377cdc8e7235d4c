"""Credentials that commands send to the admin API, and their options: token, password, client certificate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kreplica.cli.profiles.choice import is_given
from kreplica.errors import reason_of

SECRET_SIZE_MAX = 16 * 1024

_KEY = "kreplica.credentials."
"""Prefix of option keys in click's context."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_READABLE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a user.

    :param user: name of a user with a password; None without one.
    :param certificate_file: private key and certificates (PEM) of the client; None without one.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    certificate_file: Path | None = None


NO_CREDENTIALS = Credentials()


def read_token(_: click.Context, __: click.Parameter, path: Path | None) -> str | None:
    """Click callback: return the token in a file."""
    return None if path is None else token_in(path)


def token_in(path: Path) -> str:
    """Return the token in a file.

    :raise click.BadParameter: the file cannot be read, or does not contain a token.
    """
    token = _content(path).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.BadParameter(f"{path} does not contain a token: expected one line of printable characters")
    return token


def read_password(path: Path) -> str:
    """Return the first line of a file, or of standard input for ``-``.

    :raise click.BadParameter: the file cannot be read, or is empty.
    """
    text = sys.stdin.readline() if str(path) == "-" else _content(path)
    password = text.splitlines()[0] if text else ""
    if not password:
        raise click.BadParameter(f"{path} does not contain a password on its first line")
    return password


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(SECRET_SIZE_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read: {reason_of(error)}") from None


def _check_certificate(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        text = path.read_text(errors="replace")
        if "-----BEGIN CERTIFICATE-----" not in text or "PRIVATE KEY-----" not in text:
            raise click.BadParameter(f"{path} does not contain a private key and a certificate (PEM)")
    _keep(context, parameter, path)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[_KEY + str(parameter.name)] = value


def _option(name: str, variable: str, callback: Callable[..., None], text: str, **attributes: Any) -> Any:
    return click.option(
        name, envvar=variable, show_envvar=True, callback=callback, expose_value=False, help=text, **attributes
    )


USER_OPTIONS = (
    _option("--user", "KREPLICA_USER", _keep, "User name for the admin API; requires a password.", metavar="NAME"),
    _option(
        "--password-file",
        "KREPLICA_PASSWORD_FILE",
        _keep,
        "File with the password of --user; - is standard input. Without it, the command prompts for the password.",
        type=_READABLE,
    ),
    _option(
        "--certificate-file",
        "KREPLICA_CERTIFICATE_FILE",
        _check_certificate,
        "File with the private key and certificates (PEM) of this client.",
        type=_FILE,
    ),
)
"""Options whose values ``given_credentials`` returns."""


def are_credentials_given() -> bool:
    """Return True if the command has credentials that take precedence over those of its profile."""
    return any(is_given(name) for name in ("token", "user", "password_file", "certificate_file"))


def given_credentials() -> Credentials:
    """Return the credentials of the current command; prompt for the password if necessary.

    :raise click.UsageError: there is a password file without a user, or no terminal for the prompt.
    """
    meta = click.get_current_context().meta
    return credentials_of(*(meta.get(_KEY + name) for name in ("user", "password_file", "certificate_file")))


def overriding_credentials() -> Credentials:
    """Return the credentials of the current command that take precedence over those of its profile."""
    meta = click.get_current_context().meta
    names = ("user", "password_file", "certificate_file")
    return credentials_of(*(meta.get(_KEY + name) if is_given(name) else None for name in names))


def credentials_of(user: str | None, password_file: Path | None, certificate_file: Path | None) -> Credentials:
    """Return credentials; prompt for the password if there is a user without a file.

    :raise click.UsageError: there is a password file without a user, or no terminal for the prompt.
    """
    if user is None:
        if password_file is not None:
            raise click.UsageError("--password-file requires --user")
        return Credentials(certificate_file=certificate_file)
    if password_file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("--user requires --password-file if standard input is not a terminal")
        return Credentials(user, click.prompt(f"Password for {user}", hide_input=True, err=True), certificate_file)
    return Credentials(user, read_password(password_file), certificate_file)
