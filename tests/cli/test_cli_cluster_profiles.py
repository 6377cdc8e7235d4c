"""Profiles, which name clusters, and the choice of the cluster that a command uses."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from fake_admin import FakeAdmin, run_here, serving

from kreplica.cli import main
from kreplica.cli.records import data_access
from kreplica.cli.terminal.reference import root_context, subcommand_contexts

Run = Callable[..., Result]

UNSET = dict.fromkeys(
    ("KREPLICA_ADMIN", "KREPLICA_BOOTSTRAP", "KREPLICA_PROFILE", "KREPLICA_TOKEN_FILE", "KREPLICA_USER",
     "KREPLICA_PASSWORD_FILE", "KREPLICA_CA_FILE", "KREPLICA_CERTIFICATE_FILE", "KREPLICA_CLIENT_CONFIG")
)  # fmt: skip
BROKERS = {"brokers": [], "next": None}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a command with its own configuration directory."""

    def run_command(*words: object, **environment: str) -> Result:
        variables = {**UNSET, "XDG_CONFIG_HOME": str(tmp_path / "config"), **environment}
        return CliRunner().invoke(main, list(map(str, words)), env=variables, obj=run_here)

    return run_command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "kreplica" / "profiles.toml"


@pytest.fixture
def clusters() -> Iterator[dict[str, FakeAdmin]]:
    """Four admin APIs, named after the source of their address."""
    with serving() as option, serving() as variable, serving() as profile, serving() as other:
        admins = {"option": option, "variable": variable, "profile": profile, "other": other}
        for admin in admins.values():
            admin.answers["GET /v1/brokers"] = BROKERS
        yield admins


def output_of(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def clusters_with_requests(clusters: dict[str, FakeAdmin]) -> list[str]:
    return [name for name, admin in clusters.items() if admin.requests]


# --- commands ---


def test_life_of_a_profile(run: Run, path: Path, tmp_path: Path) -> None:
    """Profiles are created, listed, selected, changed and deleted; only their owner can read the file."""
    assert "There are no profiles" in output_of(run("profile", "list"))
    words = ("bootstrap=a:9092,b:9092", "admin=a:8080", "token-file=~/token", "client.security.protocol=SSL")
    assert output_of(run("profile", "create", "staging", *words)) == (
        "Created profile staging; it is now the current profile.\n"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    output_of(run("profile", "create", "local", "admin=http://127.0.0.1:8080"))
    rows = json.loads(output_of(run("profile", "list", "--json")))["profiles"]
    assert [(row["name"], row["current"]) for row in rows] == [("staging", False), ("local", True)]
    assert rows[0]["token-file"] == os.path.expanduser("~/token"), "files have absolute paths"
    assert output_of(run("profile", "use", "staging")) == "The current profile is staging.\n"
    assert (
        output_of(run("profile", "set", "bootstrap=c:9092", "token-file=", "user=ada")) == "Changed profile staging.\n"
    )
    assert json.loads(output_of(run("profile", "show", "--json"))) == {
        "name": "staging",
        "current": True,
        "bootstrap": "c:9092",
        "admin": "a:8080",
        "user": "ada",
        "client.security.protocol": "SSL",
    }
    output_of(run("profile", "set", "--profile", "local", "user=bob"))
    assert json.loads(output_of(run("profile", "show", "local", "--json")))["user"] == "bob"
    assert output_of(run("profile", "delete", "staging")) == "Deleted profile staging. There is no current profile.\n"
    assert "there is no current profile" in run("profile", "show").stderr
    assert output_of(run("profile", "use", "none")) == "There is no current profile.\n"
    assert list(path.parent.iterdir()) == [path], "no temporary file remains"


def test_secrets_are_not_shown(run: Run, path: Path) -> None:
    """A password in the file is printed by neither ``show`` nor ``list`` nor an error."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="s3cret";'
    settings = ("client.security.protocol=SASL_PLAINTEXT", "client.sasl.mechanism=PLAIN")
    output_of(run("profile", "create", "p", "bootstrap=a:1", *settings, f"client.sasl.jaas.config={jaas}"))
    assert "s3cret" in path.read_text()
    for words in (("show",), ("show", "--json"), ("list",), ("list", "--json"), ("set", "admin=ftp://x")):
        assert "s3cret" not in run("profile", *words).output
    assert "client.sasl.jaas.config   ********" in output_of(run("profile", "show"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bad name", "admin=a:1"), "a name consists of"),
        (("none", "admin=a:1"), "none is reserved"),
        (("p", "admin=ftp://x"), "admin: 'ftp://x': expected http://HOST:PORT"),
        (("p", "bootstrap=a"), "bootstrap: 'a': HOST:PORT is expected"),
        (("p", "bootstrp=a:1"), "bootstrp is not a key of profiles: did you mean bootstrap?"),
        (("p", "user=ada"), "specify at least admin=URL or bootstrap="),
        (("p", "bootstrap=a:1", "client.security.protocols=SSL"), "Did you mean security.protocol?"),
        (("p", "bootstrap=a:1", "client-config=/nowhere"), "client-config /nowhere"),
    ],
)
def test_invalid_values(run: Run, path: Path, words: tuple[str, ...], message: str) -> None:
    """The error names the key, and nothing is written."""
    result = run("profile", "create", *words)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert not path.exists()


def test_edit(run: Run, tmp_path: Path) -> None:
    """The editor opens the profile as TOML; invalid text is refused, and the user can edit it again."""
    output_of(run("profile", "create", "p", "admin=http://a:1", "client.security.protocol=SSL"))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i -e 's/http:..a:1/http:\\/\\/b:2/' \"$1\"\n")
    editor.chmod(0o755)
    assert output_of(run("profile", "edit", VISUAL=str(editor))) == "Changed profile p.\n"
    assert json.loads(output_of(run("profile", "show", "--json")))["admin"] == "http://b:2"
    editor.write_text("#!/bin/sh\necho 'admin = 7' > \"$1\"\n")
    refused = run("profile", "edit", VISUAL=str(editor))
    assert refused.exit_code == 1
    assert "all values must be strings" in refused.stderr
    assert json.loads(output_of(run("profile", "show", "--json")))["admin"] == "http://b:2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\ncurrent = x", "(at line 2, column 11)"),
        ('current = "x"', 'current = "x": this profile does not exist'),
        ("[profile.x]", "unknown key profile; expected current and profiles"),
        ("[profiles.x]\nadmin = 1", "profile x: all values must be strings"),
        ('[profiles.x]\nca-file = "ca.pem"', "profile x: ca-file: ca.pem must be an absolute path"),
    ],
)
def test_damaged_file(run: Run, path: Path, text: str, message: str) -> None:
    """Every command that uses a damaged file reports the file and the position of the error."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)
    result = run("topic", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"kreplica: {path}: ")
    assert message in result.stderr


def test_readable_file_is_reported(run: Run, path: Path) -> None:
    output_of(run("profile", "create", "p", "admin=a:1"))
    path.chmod(0o644)
    assert f"chmod 600 {path}" in run("profile", "list").stderr
    output_of(run("profile", "set", "user=ada"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_unknown_profile(run: Run) -> None:
    output_of(run("profile", "create", "staging", "admin=a:1"))
    result = run("topic", "list", "--profile", "stagin")
    assert result.exit_code == 1
    assert 'there is no profile "stagin"' in result.stderr
    assert "did you mean staging?" in result.stderr


# --- precedence ---


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ((), {}, "profile"),
        ((), {"KREPLICA_ADMIN": "variable"}, "variable"),
        (("--admin", "option"), {"KREPLICA_ADMIN": "variable"}, "option"),
        (("--profile", "other"), {}, "other"),
        (("--profile", "other"), {"KREPLICA_ADMIN": "variable", "KREPLICA_PROFILE": "current"}, "other"),
        (("--profile", "other", "--admin", "option"), {}, "option"),
        ((), {"KREPLICA_PROFILE": "other"}, "other"),
        ((), {"KREPLICA_PROFILE": "other", "KREPLICA_ADMIN": "variable"}, "variable"),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before the command", "after the command"])
def test_precedence(
    run: Run,
    clusters: dict[str, FakeAdmin],
    words: tuple[str, ...],
    variables: dict[str, str],
    expected: str,
    before: bool,
) -> None:
    """Options, including ``--profile``, take precedence over variables, and variables over the current profile."""
    output_of(run("profile", "create", "other", f"admin={clusters['other'].url}"))
    output_of(run("profile", "create", "current", f"admin={clusters['profile'].url}"))

    def url(text: str) -> str:
        return clusters[text].url if text in ("option", "variable") else text

    environment = {name: url(text) for name, text in variables.items()}
    profile = words[:2] if words[:1] == ("--profile",) else ()
    rest = [url(word) for word in words[len(profile) :]]
    output_of(run(*(profile if before else ()), "broker", "list", *(() if before else profile), *rest, **environment))
    assert clusters_with_requests(clusters) == [expected]


def test_credentials_of_a_profile_are_sent_only_to_it(run: Run, clusters: dict[str, FakeAdmin], tmp_path: Path) -> None:
    """A profile's token is not sent to another admin API; a token option replaces the profile's user."""
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "token").write_text("t0ken\n")
    values = ("user=ada", f"password-file={tmp_path}/password")
    output_of(run("profile", "create", "current", f"admin={clusters['profile'].url}", *values))
    output_of(run("broker", "list"))
    assert clusters["profile"].last.headers["authorization"] == "Basic YWRhOnMzY3JldA=="
    output_of(run("broker", "list", "--admin", clusters["option"].url))
    assert "authorization" not in clusters["option"].last.headers
    output_of(run("broker", "list", "--token-file", tmp_path / "token"))
    assert clusters["profile"].last.headers["authorization"] == "Bearer t0ken"
    output_of(run("broker", "list", "--profile", "current", KREPLICA_TOKEN_FILE=str(tmp_path / "token")))
    assert clusters["profile"].last.headers["authorization"] == "Basic YWRhOnMzY3JldA=="


def test_the_cluster_is_named(run: Run, clusters: dict[str, FakeAdmin]) -> None:
    """Standard error names the profile and its address, unless JSON is requested or no profile is used."""
    url = clusters["profile"].url
    output_of(run("profile", "create", "current", f"admin={url}"))
    assert run("broker", "list").stderr == f"kreplica: profile current ({url})\n"
    assert run("broker", "list", "--json").stderr == ""
    assert run("broker", "list", "--admin", clusters["option"].url).stderr == ""


def test_profile_without_admin_api(run: Run) -> None:
    """If the profile has no admin API, the command fails instead of using the default cluster."""
    output_of(run("profile", "create", "p", "bootstrap=a:9092"))
    result = run("topic", "list")
    assert result.exit_code == 1
    assert "profile p has no admin API: use --admin URL, or add it with `kreplica profile set" in result.stderr


# --- commands that read and write records ---


class ClientCreated(Exception):
    """Raised to end a data command when it creates its client."""


@pytest.fixture
def created_clients(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Record the address of each cluster client, and True if it has security settings; end the command."""
    created: list[tuple[str, bool]] = []

    def cluster(bootstrap: str, *, options: object, runtime: object = None) -> None:
        created.append((bootstrap, runtime is not None))
        raise ClientCreated

    monkeypatch.setattr(data_access, "Cluster", cluster)
    return created


DATA_COMMANDS = (
    ("produce", "orders"),
    ("consume", "orders"),
    ("topic", "export", "orders", "x.jsonl"),
    ("topic", "copy", "orders", "orders-2"),
)


@pytest.mark.parametrize("words", DATA_COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_data_commands_use_the_profile(
    run: Run, created_clients: list[tuple[str, bool]], clusters: dict[str, FakeAdmin], words: tuple[str, ...]
) -> None:
    """Data commands use the profile's addresses and security settings; an address option overrides both."""
    output_of(run("profile", "create", "secure", "bootstrap=a:9093", "client.security.protocol=SSL"))
    output_of(run("profile", "create", "only-admin", f"admin={clusters['profile'].url}"))
    clusters["profile"].answers["GET /v1/brokers"] = clusters["option"].answers["GET /v1/brokers"] = {
        "brokers": [{"live": True, "endpoints": ["PLAINTEXT://found:9092"]}], "next": None
    }  # fmt: skip
    of_another = {"KREPLICA_BOOTSTRAP": "b:1", "KREPLICA_ADMIN": "http://127.0.0.1:1"}
    bootstrap = "--from-bootstrap" if words[1] == "copy" else "--bootstrap"
    for options, variables, expected in (
        ((), {}, ("found:9092", False)),
        (("--profile", "secure"), {}, ("a:9093", True)),
        (("--profile", "secure"), of_another, ("a:9093", True)),
        ((), {"KREPLICA_PROFILE": "secure"}, ("a:9093", True)),
        ((), {"KREPLICA_PROFILE": "secure", "KREPLICA_BOOTSTRAP": "b:1"}, ("b:1", False)),
        ((), {"KREPLICA_PROFILE": "secure", "KREPLICA_ADMIN": clusters["option"].url}, ("found:9092", False)),
        (("--profile", "secure", bootstrap, "b:1"), {}, ("b:1", False)),
        (("--profile", "none"), {}, (data_access.DEFAULT_BOOTSTRAP, False)),
    ):  # fmt: skip
        result = run(*words, *options, **variables)
        assert isinstance(result.exception, ClientCreated), result.output
        assert created_clients.pop() == expected, (options, variables)


def test_data_is_not_mixed_with_the_name_of_the_cluster(run: Run, created_clients: list[tuple[str, bool]]) -> None:
    output_of(run("profile", "create", "p", "bootstrap=a:9093"))
    result = run("consume", "orders")
    assert (result.stdout, result.stderr) == ("", "kreplica: profile p (a:9093)\n")


# --- help ---


def commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for inner in subcommand_contexts(context):
        yield inner.command_path, inner.command
        if isinstance(inner.command, click.Group):
            yield from commands(inner)


def test_every_command_with_a_cluster_has_the_option() -> None:
    """The help of each command shows its variables, and commands that connect to a cluster have ``--profile``."""
    with root_context() as context:
        commands_by_path = dict(commands(context))
    addressed = 0
    for path, command in commands_by_path.items():
        options = {name: each for each in command.params if isinstance(each, click.Option) for name in each.opts}
        assert all(each.show_envvar for each in options.values() if each.envvar), path
        if options.keys() & {"--admin", "--bootstrap", "--from-bootstrap"}:
            assert "--profile" in options, path
            addressed += 1
    assert addressed >= 60
