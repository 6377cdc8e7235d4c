"""Behaviour that all commands with an admin API share."""

from __future__ import annotations

import io
import json
import re
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from kreplica.cli import SUBCOMMANDS, main
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.terminal import screen
from kreplica.cli.terminal.lazy_groups import LazyGroup

CLUSTER = {
    "cluster_id": "abc",
    "kreplica_version": "1.0",
    "broker_id": 2,
    "controller": {"broker_id": 1, "epoch": 7},
    "live_brokers": 3,
    "topics": 4,
    "partitions": 12,
    "offline_partitions": 0,
    "under_replicated_partitions": 5,
    "under_min_isr_partitions": None,
    "zookeeper": {"connect": "127.0.0.1:2181", "session": "connected"},
    "standalone": False,
}


FIGURES = {"at_ms": 1, "brokers": [], "problems": []}


def test_cluster_summary(admin, kreplica):
    """The summary shows the controller and the problems of the cluster."""
    admin.answers |= {"GET /v1/cluster": CLUSTER, "GET /v1/live-metrics": FIGURES}
    done = kreplica("cluster")
    assert done.exit_code == 0
    assert "controller          broker 1, epoch 7\n" in done.stdout
    assert "  under-replicated  5\n" in done.stdout
    assert "min.insync.replicas" not in done.stdout, "the setting is unknown"
    assert "certificates" not in done.stdout, "no listener has TLS"
    assert "\x1b" not in done.stdout, "no colours without a terminal"


def test_cordoned_brokers(admin, kreplica):
    """The summary names the cordoned brokers."""
    admin.answers |= {"GET /v1/cluster": {**CLUSTER, "cordoned_brokers": [1]}, "GET /v1/live-metrics": FIGURES}
    assert "Broker 1 is cordoned: it gets no new replicas.\n" in kreplica("cluster").stdout
    admin.answers["GET /v1/cluster"]["cordoned_brokers"] = [1, 2, 4]
    assert "Brokers 1, 2 and 4 are cordoned: they get no new replicas.\n" in kreplica("cluster").stdout


def broker_figures(broker_id, *days, warnings=()):
    certificates = [{"listener": f"L{each}", "subject": "CN=x", "expires_at_ms": 1, "days": each} for each in days]
    return {"broker_id": broker_id, "live": True, "certificates": certificates, "warnings": list(warnings)}


def test_certificates_of_the_cluster(admin, kreplica):
    """The summary shows the earliest expiry over all brokers, each warning, and brokers that did not respond."""
    admin.answers["GET /v1/cluster"] = CLUSTER
    dead = {"broker_id": 4, "live": False, "certificates": None, "warnings": None}
    warning = "The certificate CN=x of the listener L12.7 expires in 12 days."
    rows = [broker_figures(1, 50.5, 40), broker_figures(2, 12.7, warnings=[warning]), dead]
    admin.answers["GET /v1/live-metrics"] = {**FIGURES, "brokers": rows, "problems": ["broker 4: no response"]}
    shown = kreplica("cluster").stdout
    assert "  first expires in 12 days (broker 2, listener L12.7)\n" in shown
    assert shown.endswith("The certificates of a broker are unknown: broker 4: no response\n")
    admin.answers["GET /v1/live-metrics"] = {**FIGURES, "brokers": [broker_figures(1, 1.5), broker_figures(3, -1.2, 3)]}
    assert "  expired 1 day ago (broker 3, listener L-1.2)\n" in kreplica("cluster").stdout


def test_json_is_the_document(admin, kreplica):
    """With --json, the output is exactly the admin API's document."""
    admin.answers["GET /v1/cluster"] = CLUSTER
    done = kreplica("cluster", "--json")
    assert json.loads(done.stdout) == CLUSTER
    assert done.stderr == ""


def test_control_characters_in_an_error_are_escaped(capsys):
    """Control characters are escaped in errors, which may contain a broker's message, a file name or a record."""
    CommandFailed("no topic 'a\x1b[2J\x9bb'\nlook").show()
    assert capsys.readouterr().err == "kreplica: no topic 'a\\x1b[2J\\x9bb'\nlook\n"


def test_problem_contains_the_remedy(admin, kreplica):
    """The error has the reason and the remedy; the exit status is 1, and standard output is empty."""
    problem = {"title": "X", "status": 503, "detail": "no controller", "what_to_do": "Wait, or start a broker."}
    admin.answers["GET /v1/cluster"] = 503, problem
    done = kreplica("cluster")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "kreplica: no controller\nWait, or start a broker.\n"
    done = kreplica("cluster", "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert json.loads(done.stderr) == problem


def test_connection_refused():
    """If the connection is refused, the error is one line with the address and the remedy."""
    done = subprocess.run(
        [sys.executable, "-m", "kreplica.cli", "cluster", "--admin", "http://127.0.0.1:1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kreplica: no response from http://127.0.0.1:1: Connection refused.  "
        "Use --admin URL or KREPLICA_ADMIN to set the address of a broker's admin API\n"
    )


def test_other_server(admin, kreplica):
    """A server that is not an admin API is detected."""
    admin.answers["GET /v1/cluster"] = 200, "text/html", b"<html>hello"
    done = kreplica("cluster")
    assert done.exit_code == 1
    assert "responded with status 200 and text/html: this is not a kreplica admin API" in done.stderr


def test_token_is_sent(admin, kreplica, tmp_path):
    """The token is read from the file and sent with each request."""
    admin.answers |= {"GET /v1/cluster": CLUSTER, "GET /v1/live-metrics": FIGURES}
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    kreplica("cluster", "--token-file", str(file))
    assert admin.last.headers["authorization"] == "Bearer s3cret"
    kreplica("cluster")
    assert "authorization" not in admin.last.headers


def test_missing_token(admin, kreplica):
    """If a token is required, the error names the option."""
    admin.answers["GET /v1/cluster"] = 401, {"title": "Unauthorized", "status": 401, "detail": "a token is needed"}
    done = kreplica("cluster")
    assert "Use --token-file or KREPLICA_TOKEN_FILE to provide the token." in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--admin", "ftp://x"], "'ftp://x': expected http://HOST:PORT or https://HOST:PORT"),
        (["--admin", "http://x/path"], "expected http://HOST:PORT or https://HOST:PORT"),
        (["--admin", "http://x:99999"], "expected http://HOST:PORT or https://HOST:PORT"),
        (["--token-file", "/nowhere"], "'/nowhere' does not exist"),
        (["--token-file", "EMPTY"], "does not contain a token"),
        (["--ca-file", "EMPTY"], "does not contain a certificate (PEM)"),
    ],
)
def test_invalid_connection_options(words, message, tmp_path, monkeypatch):
    """Invalid connection options are usage errors, reported before a request is sent."""
    monkeypatch.chdir(tmp_path)
    Path("EMPTY").write_text("")
    done = CliRunner().invoke(main, ["cluster", *words])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_lists_are_read_completely(admin, kreplica):
    """Lists contain the rows of all pages, as text and as JSON."""

    def partition(number):
        return {"topic": "t", "partition": number, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1],
                "offline_replicas": [], "adding": [], "removing": [], "read_only": False}  # fmt: skip

    pages = [
        {"partitions": [partition(0), partition(1)], "next": "t:1"},
        {"partitions": [partition(2)], "next": None},
    ]
    admin.answers["GET /v1/partitions"] = list(pages)
    document = json.loads(kreplica("partition", "list", "--json").stdout)
    assert [each["partition"] for each in document["partitions"]] == [0, 1, 2]
    assert document["next"] is None
    assert [request.query.get("after") for request in admin.requests] == [None, "t:1"]


def test_control_characters_in_names_are_escaped(admin, kreplica):
    group = {"group": "a\x1b[2Jb", "type": "classic", "protocol_type": "consumer", "state": "Empty", "coordinator": 1,
             "members": None}  # fmt: skip
    admin.answers["GET /v1/groups"] = {"groups": [group], "is_complete": True, "problems": []}
    done = kreplica("group", "list")
    assert "a\\x1b[2Jb" in done.stdout
    assert "\x1b" not in done.stdout


def test_help_is_fast():
    """``kreplica --help`` imports only the modules that it needs."""
    command = [sys.executable, "-c", "import sys; from kreplica.cli import main\ntry: main(['--help'])\n"
               "finally: print(sorted({'twisted', 'rich', 'treq'} & set(sys.modules)))"]  # fmt: skip
    fastest_s = 10.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        fastest_s = min(fastest_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.stdout.splitlines()[-1] == "[]"
    assert fastest_s < 0.3


def test_every_command_in_the_help_exists():
    """Each command accepts --help and has a description."""

    def walk(command, context):
        assert command.help, context.command_path
        if isinstance(command, LazyGroup) or hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                subcommand = command.get_command(context, name)
                assert subcommand is not None, name
                with type(context)(subcommand, info_name=name, parent=context) as child:
                    yield child.command_path
                    yield from walk(subcommand, child)

    with main.make_context("kreplica", [], resilient_parsing=True) as context:
        paths = list(walk(main, context))
    assert len(paths) == len(set(paths))
    assert {f"kreplica {name}" for name in SUBCOMMANDS} <= set(paths)
    assert "kreplica plan make replication-factor" in paths


def test_narrow_terminal(monkeypatch):
    """In a narrow terminal, prose is wrapped, but names and numbers are never split."""
    out = io.StringIO()
    narrow = partial(Console, file=out, width=50, force_terminal=True)
    monkeypatch.setattr(screen, "Console", narrow)
    rows = [("a-long-name-that-is-never-broken", 12, "some words that say more than fits beside the name")]
    screen.Screen().table(("NAME", "NUMBER", ""), rows, empty_text="")
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[1].startswith("a-long-name-that-is-never-broken      12  some words")
    assert " ".join(word for line in lines[1:] for word in line.split()[-4:]).endswith("beside the name")
    assert len(lines) > 3
