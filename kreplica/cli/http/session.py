"""Shared parts of the commands that use the admin API: options, requests, output and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote

import click

from kreplica.cli.http.admin_url import parse_admin_url
from kreplica.cli.http.credentials import (
    NO_CREDENTIALS,
    USER_OPTIONS,
    Credentials,
    are_credentials_given,
    credentials_of,
    given_credentials,
    overriding_credentials,
    read_token,
    token_in,
)
from kreplica.cli.http.request_commands import command_of
from kreplica.cli.profiles.choice import announce, announce_variable, chosen_profile, is_given, profile_option
from kreplica.cli.terminal.screen import Screen, escape_controls

if TYPE_CHECKING:
    from kreplica.cli.http.rest import Document, RequestRejected, RestClient
    from kreplica.cli.profiles.profile_file import Profile
    from kreplica.cli.terminal.running import Runner

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"

INDENTED_ROWS_MAX = 200
"""Longer lists are printed with one line per row."""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the signal number, as in shells."""


class CommandFailed(click.ClickException):
    """The command failed; its exit status is 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"kreplica: {escape_controls(self.message)}", file=file, err=file is None)


@dataclass(frozen=True, slots=True)
class Session:
    """Access to the admin API for one command.

    :param as_json: print documents as JSON instead of text.
    :param run: runs the reactor.
    """

    url: str
    token: str | None = field(repr=False)
    ca_file: Path | None
    as_json: bool
    run: Runner
    credentials: Credentials = NO_CREDENTIALS

    def run_with_client(self, work: Callable[[RestClient], Awaitable[T]]) -> T:
        """Call ``work`` with a client, run the reactor until the work ends, and return its result.

        :raise CommandFailed: a request was rejected, or the admin API did not respond.
        """
        from kreplica.cli.http.rest import AdminUnreachable, RequestRejected, RestClient, Server

        credentials = self.credentials
        server = Server(
            self.url, self.token, self.ca_file, credentials.user, credentials.password, credentials.certificate_file
        )

        async def call(reactor: Any) -> T:
            return await work(RestClient(server, reactor))

        try:
            return self.run(call)
        except AdminUnreachable as error:
            raise CommandFailed(str(error)) from None
        except RequestRejected as error:
            self._report_rejection(error)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Document:
        """Return the document at a path."""
        document: Document = self.run_with_client(lambda client: client.get(path, query))
        return document

    def get_all(
        self, path: str, member: str, query: Mapping[str, Any] | None = None, limit: int | None = None
    ) -> Document:
        """Return a list with the entries of all its pages, at most ``limit``."""
        return self.run_with_client(lambda client: client.get_list(path, member, query, limit))

    def send(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None) -> Any:
        """Send a write request and return the document of the response."""
        return self.run_with_client(lambda client: client.send(method, path, body, query=query)).document

    def show(self, document: Any, describe: Callable[[Screen, Any], None]) -> None:
        """Print a document, as JSON or as the text that ``describe`` prints."""
        if self.as_json:
            click.echo(json_text(document))
        else:
            describe(Screen(), document)

    def show_write(self, document: Any, describe: Callable[[Screen, Any], None]) -> None:
        """Print the response to a write request; the text output of a dry run lists the ZooKeeper writes."""

        def print_result(screen: Screen, response: Any) -> None:
            if response and response.get("dry_run"):
                screen.line("Nothing was changed (--dry-run).  Writes to ZooKeeper:")
                print_writes(screen, response.get("znodes") or [])
            else:
                describe(screen, response)

        self.show(document, print_result)

    def _report_rejection(self, error: RequestRejected) -> NoReturn:
        if self.as_json:
            click.echo(json.dumps(error.problem), err=True)
            raise SystemExit(1)
        what_to_do = error.problem.get("what_to_do")
        if error.status == 401:
            what_to_do = _login_advice(error.problem.get("accepts"))
        advice = [_replace_requests(str(what_to_do))] if what_to_do else []
        raise CommandFailed("\n".join([escape_controls(str(error)), *advice]))


def json_text(document: Any) -> str:
    """Return a document as indented JSON; long lists have one line per row, which is ten times faster."""
    if not isinstance(document, dict):
        return json.dumps(document, indent=2)
    members = []
    for name, value in document.items():
        if isinstance(value, list) and len(value) > INDENTED_ROWS_MAX:
            rows = ",\n".join([f"    {json.dumps(row)}" for row in value])
            text = f"[\n{rows}\n  ]"
        else:
            text = json.dumps(value, indent=2).replace("\n", "\n  ")
        members.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}" if members else "{}"


def _login_advice(accepted: Any) -> str:
    """Return the advice for a request with missing or wrong credentials.

    :param accepted: the authentication methods that the server accepts; None if unknown.
    """
    if not isinstance(accepted, list) or accepted == ["token"]:
        return "Use --token-file or KREPLICA_TOKEN_FILE to provide the token."
    options = {"token": "--token-file", "basic": "--user", "certificate": "--certificate-file"}
    return f"Use {' or '.join(options[name] for name in accepted if name in options)} with valid credentials."


def path_of(*segments: object) -> str:
    """Return the path ``/v1/...``; the segments are quoted."""
    return "/".join(["/v1", *(quote(str(segment), safe="") for segment in segments)])


PAGE = {"limit": 10_000}
"""Query for long lists: the largest page that the admin API allows."""


def _replace_requests(what_to_do: str) -> str:
    """Replace the requests in the admin API's advice with equivalent commands."""

    def command(match: re.Match[str]) -> str:
        words = command_of("GET", match[1])
        return f"`{words}`" if words.startswith("kreplica ") else match[0]

    return _REQUEST.sub(command, escape_controls(what_to_do))


_REQUEST = re.compile(r"GET (/v1/[\w/]+)")


def print_writes(screen: Screen, writes: list[Any]) -> None:
    """Print the ZooKeeper writes of a request, one line per znode."""
    for write in writes:
        data = write.get("data")
        text = "" if data is None else data if isinstance(data, str) else json.dumps(data)
        screen.line(f"  {write['operation']:<6} {write['path']}{'  ' if text else ''}{text}")
    if not writes:
        screen.line("  none")


def _parse_url(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else parse_admin_url(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _check_ca_file(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and "-----BEGIN CERTIFICATE-----" not in path.read_text(errors="replace"):
        raise click.BadParameter(f"{path} does not contain a certificate (PEM)")
    return path


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_CREDENTIAL_OPTIONS = (
    click.option("--token-file", "token", type=_FILE, envvar="KREPLICA_TOKEN_FILE", show_envvar=True,
                 callback=read_token, help="File with the bearer token for the admin API."),
    click.option("--ca-file", type=_FILE, envvar="KREPLICA_CA_FILE", show_envvar=True, callback=_check_ca_file,
                 help="File with the certificates (PEM) to trust instead of the system's."),
    *USER_OPTIONS,
    profile_option,
)  # fmt: skip


def _admin_option(text: str, **attributes: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--admin", "url", metavar="URL", envvar="KREPLICA_ADMIN", show_envvar=True,
                        callback=_parse_url, help=text, **attributes)  # fmt: skip


_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print the response of the admin API as JSON.")


def admin_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--admin``, ``--token-file`` and ``--ca-file``, as the arguments ``url``, ``token`` and ``ca_file``.

    The options for other credentials and the profile are added too; ``admin_session`` reads them from click's context.
    """
    text = "Admin API of any broker of the cluster."
    return _with_options(command, _admin_option(text, default=DEFAULT_URL, show_default=True))


def optional_admin_options(command: Callable[..., None], bootstrap: str = "--bootstrap") -> Callable[..., None]:
    """Add the options of ``admin_options`` without a default: ``url`` is None if it is not given.

    :param bootstrap: name of the command's option for broker addresses.
    """
    text = f"Admin API of any broker; used to find the brokers if {bootstrap} is not given."
    return _with_options(command, _admin_option(text))


def _with_options(command: Callable[..., None], first: Callable[..., Any]) -> Callable[..., None]:
    for option in reversed((first, *_CREDENTIAL_OPTIONS)):
        command = option(command)
    return command


def admin_session(url: str | None, token: str | None, ca_file: Path | None, *, as_json: bool) -> Session:
    """Return the session for the arguments of ``admin_options``, or for the profile if ``--admin`` is not given.

    :raise CommandFailed: the profile has no admin API.
    """
    profile = None if is_given("url") else chosen_profile()
    if profile is not None:
        return _profile_session(profile, token, ca_file, as_json=as_json)
    if url is not None:
        announce_variable("url", "KREPLICA_ADMIN", url)
    credentials = given_credentials()
    if token is not None and credentials.user is not None:
        raise click.UsageError("use either --token-file or --user")
    return Session(url or DEFAULT_URL, token, ca_file, as_json, current_runner(), credentials)


def _profile_session(profile: Profile, token: str | None, ca_file: Path | None, *, as_json: bool) -> Session:
    """Return the session of a profile; options for credentials take precedence over its own."""
    if profile.admin is None:
        raise CommandFailed(
            f"profile {profile.name} has no admin API: use --admin URL, or add it with "
            f"`kreplica profile set --profile {profile.name} admin=URL`"
        )
    url = parse_admin_url(profile.admin)
    announce(profile, url)
    if are_credentials_given():
        credentials = overriding_credentials()
        token = token if is_given("token") else None
    else:
        token_file = profile.file("token-file")
        token = None if token_file is None else token_in(token_file)
        credentials = credentials_of(
            profile.values.get("user"), profile.file("password-file"), profile.file("certificate-file")
        )
    ca_file = ca_file if is_given("ca_file") else profile.file("ca-file")
    return Session(url, token, ca_file, as_json, current_runner(), credentials)


def current_runner() -> Runner:
    """Return the function that runs the reactor; tests pass another one as click's ``obj``."""
    runner: Runner | None = click.get_current_context().obj
    if runner is not None:
        return runner
    from kreplica.cli.terminal.running import run

    return run


def with_session(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the admin API to a command, which receives a ``Session`` as its first argument."""

    @wraps(command)
    def run_command(*, url: str, token: str | None, ca_file: Path | None, as_json: bool, **others: Any) -> None:
        command(admin_session(url, token, ca_file, as_json=as_json), **others)

    return admin_options(_JSON_OPTION(run_command))


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the writes to ZooKeeper.")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, yes: bool, session: Session) -> None:
    """Ask the user for confirmation, unless ``--yes`` is given.

    :raise click.UsageError: ``--json`` is given without ``--yes``; a program cannot confirm.
    """
    if yes:
        return
    if session.as_json:
        raise click.UsageError("--json requires --yes or --dry-run")
    click.confirm(question, abort=True, err=True)
