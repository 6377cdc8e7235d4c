"""What the commands that ask the admin API have in common: where it is, how its answers are shown, how problems are."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import click

from kreplica.cli.http.request_commands import command_of
from kreplica.cli.terminal.screen import Screen, plain

if TYPE_CHECKING:
    from kreplica.cli.http.rest import Document, Refused, RestClient
    from kreplica.cli.terminal.running import Runner

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
TOKEN_SIZE_MAX = 16 * 1024


class Failed(click.ClickException):
    """What was asked for could not be done: exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"kreplica: {plain(self.message)}", file=file, err=file is None)


@dataclass(frozen=True, slots=True)
class Session:
    """One command's dealings with the admin API.

    :param as_json: print documents, for programs, instead of what people read.
    :param run: runs the reactor.
    """

    url: str
    token: str | None
    ca_file: Path | None
    as_json: bool
    run: Runner

    def ask(self, work: Callable[[RestClient], Awaitable[T]]) -> T:
        """Run the whole work of a command.

        :raise click.ClickException: where it is refused, or nobody answers.
        """
        from kreplica.cli.http.rest import Refused, RestClient, Server, Unreachable

        async def connected(reactor: Any) -> T:
            return await work(RestClient(Server(self.url, self.token, self.ca_file), reactor))

        try:
            return self.run(connected)
        except Unreachable as error:
            raise Failed(str(error)) from None
        except Refused as error:
            self._refused(error)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Document:
        """The document of a path."""
        document: Document = self.ask(lambda client: client.get(path, query))
        return document

    def get_all(self, path: str, member: str, query: Mapping[str, Any] | None = None) -> Document:
        """A list to its end."""
        return self.ask(lambda client: client.pages(path, member, query))

    def send(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None) -> Any:
        """The document that a write is answered with."""
        return self.ask(lambda client: client.send(method, path, body, query=query)).document

    def show(self, document: Any, describe: Callable[[Screen, Any], None]) -> None:
        """Print the document as it is, or described to people."""
        if self.as_json:
            click.echo(json.dumps(document, indent=2))
        else:
            describe(Screen(), document)

    def show_written(self, document: Any, describe: Callable[[Screen, Any], None]) -> None:
        """As ``show``; of a dry run people see what would be written instead."""

        def told(screen: Screen, answer: Any) -> None:
            if answer and answer.get("dry_run"):
                screen.line("Nothing was changed (--dry-run).  This would be written to ZooKeeper:")
                describe_writes(screen, answer.get("znodes") or [])
            else:
                describe(screen, answer)

        self.show(document, told)

    def _refused(self, error: Refused) -> NoReturn:
        if self.as_json:
            click.echo(json.dumps(error.problem), err=True)
            raise SystemExit(1)
        what_to_do = error.problem.get("what_to_do")
        if what_to_do is None and error.status == 401 and self.token is None:
            what_to_do = "Give the token with --token-file or KREPLICA_TOKEN_FILE."
        raise Failed("\n".join([plain(str(error)), *([_in_commands(str(what_to_do))] if what_to_do else [])]))


def path_of(*segments: object) -> str:
    """``/v1/...`` of names that may hold anything."""
    return "/".join(["/v1", *(quote(str(segment), safe="") for segment in segments)])


PAGE = {"limit": 10_000}
"""For lists that may be long: as much in one answer as the admin API gives."""


def _in_commands(what_to_do: str) -> str:
    """The same with commands in the place of requests, for whoever types commands."""

    def command(found: re.Match[str]) -> str:
        told = command_of("GET", found[1])
        return f"`{told}`" if told.startswith("kreplica ") else found[0]

    return _REQUEST.sub(command, plain(what_to_do))


_REQUEST = re.compile(r"GET (/v1/[\w/]+)")


def describe_writes(screen: Screen, writes: list[Any]) -> None:
    """What a write does to ZooKeeper: a line for each znode."""
    for write in writes:
        data = write.get("data")
        text = "" if data is None else data if isinstance(data, str) else json.dumps(data)
        screen.line(f"  {write['operation']:<6} {write['path']}{'  ' if text else ''}{text}")
    if not writes:
        screen.line("  nothing")


def _url(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    parts = urlsplit(text if "//" in text else f"http://{text}")
    try:
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and parts.path in ("", "/")
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        raise click.BadParameter(f"{text!r}: http://HOST:PORT or https://HOST:PORT is expected")
    return f"{parts.scheme}://{parts.netloc}"


def _token(_: click.Context, __: click.Parameter, path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_SIZE_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.BadParameter(f"{path} holds no token: one line of printable characters is expected")
    return token


def _ca_file(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and "-----BEGIN CERTIFICATE-----" not in path.read_text(errors="replace"):
        raise click.BadParameter(f"{path} holds no certificate (PEM)")
    return path


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_CREDENTIAL_OPTIONS = (
    click.option("--token-file", "token", type=_FILE, envvar="KREPLICA_TOKEN_FILE", show_envvar=True, callback=_token,
                 help="Holds the token that the admin API wants."),
    click.option("--ca-file", type=_FILE, envvar="KREPLICA_CA_FILE", show_envvar=True, callback=_ca_file,
                 help="Certificates (PEM) to trust instead of the system's."),
)  # fmt: skip


def _admin_option(text: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--admin", "url", metavar="URL", envvar="KREPLICA_ADMIN", show_envvar=True, callback=_url, help=text, **more
    )


_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print what the admin API answers, as JSON.")


def admin_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--admin``, ``--token-file`` and ``--ca-file``, as ``url``, ``token`` and ``ca_file``."""
    text = "A broker's admin API; any broker of the cluster will do."
    return _with_options(command, _admin_option(text, default=DEFAULT_URL, show_default=True))


def optional_admin_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the same options; ``url`` is None if no admin API was named."""
    return _with_options(command, _admin_option("A broker's admin API; it names the brokers if --bootstrap does not."))


def _with_options(command: Callable[..., None], first: Callable[..., Any]) -> Callable[..., None]:
    for option in reversed((first, *_CREDENTIAL_OPTIONS)):
        command = option(command)
    return command


def admin_session(url: str, token: str | None, ca_file: Path | None, *, as_json: bool) -> Session:
    """What ``admin_options`` gave; tests pass a ``Runner`` of their own as click's ``obj``."""
    runner = click.get_current_context().obj
    if runner is None:
        from kreplica.cli.terminal.running import run as runner
    return Session(url, token, ca_file, as_json, runner)


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that all have that ask the admin API, and a ``Session`` as its first argument."""

    @wraps(command)
    def begun(*, url: str, token: str | None, ca_file: Path | None, as_json: bool, **others: Any) -> None:
        command(admin_session(url, token, ca_file, as_json=as_json), **others)

    return admin_options(_JSON_OPTION(begun))


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be written to ZooKeeper.")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask whether that is meant.")


def confirm(question: str, *, yes: bool, session: Session) -> None:
    """Ask a person, unless ``--yes`` said it.

    :raise click.UsageError: there is nobody to ask: output is for programs.
    """
    if yes:
        return
    if session.as_json:
        raise click.UsageError("with --json nobody is asked: give --yes (or --dry-run) too")
    click.confirm(question, abort=True, err=True)
