"""``kreplica why`` and ``kreplica timeline``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from kreplica.cli.commands import timeline
from kreplica.cli.http.request_commands import command_of

WHY = {
    "subject": {"topic": "orders", "partition": 0},
    "state": "offline",
    "summary": "orders-0 has no leader: the replicas with all acknowledged records (brokers 1 and 2) are unavailable.",
    "decided": [
        {"at_ms": 1_790_000_000_000, "broker_id": 3, "controller_epoch": 4, "event": "broker 1 went",
         "change": "leader 1 -> none"},
    ],
    "waits_for": ["Broker 1 to restart."],
    "you_can": [
        {"text": "Start broker 1."},
        {"text": "Make broker 3 the leader by an unclean election; acknowledged records may be lost.",
         "request": {"method": "POST", "path": "/v1/elections",
                     "body": {"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}]}}},
    ],
    "facts": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("partition", "orders:0"), "/v1/why/partitions/orders/0"),
        (("group", "kitchen"), "/v1/why/groups/kitchen"),
        (("plan", "plan-1"), "/v1/why/plans/plan-1"),
        (("broker", "2"), "/v1/why/brokers/2"),
    ],
)
def test_why(admin, kreplica, words, path):
    """The output shows the state, its causes, remedies, and the last decision."""
    admin.answers[f"GET {path}"] = WHY
    lines = [line.rstrip() for line in kreplica("why", *words).stdout.splitlines()]
    assert lines[0] == WHY["summary"]
    assert lines[2:4] == ["Waiting for", "  Broker 1 to restart."]
    assert lines[5:9] == [
        "You can", "  Start broker 1.",
        "  Make broker 3 the leader by an unclean election; acknowledged records may be lost.",
        "    kreplica election unclean orders:0",
    ]  # fmt: skip
    assert lines[-1].split()[2:] == ["UTC", "3", "4", "broker", "1", "went", "leader", "1", "->", "none"]
    assert json.loads(kreplica("why", *words, "--json").stdout) == WHY


def test_stalls_of_a_broker(admin, kreplica):
    """Each stall is printed with its time, its duration and the request that caused it."""
    cause = "Metadata v4 (90000 bytes) from client 'a' at 10.0.0.8:1"
    stall = {"at_ms": 1_790_000_000_000, "duration_ms": 240, "cause": cause}
    facts = {"stalls_since_start": 1, "stalls": [stall]}
    admin.answers["GET /v1/why/brokers/2"] = {**WHY, "decided": [], "facts": facts}
    titles, row = kreplica("why", "broker", "2").stdout.splitlines()[-2:]
    assert titles.split() == ["BLOCKED", "UNTIL", "FOR", "BY"]
    assert row.split(maxsplit=5)[2:] == ["UTC", "240", "ms", cause]


@pytest.mark.parametrize(
    ("method", "path", "body", "command"),
    [
        ("GET", "/v1/why/partitions/orders/3", None, "kreplica why partition orders:3"),
        ("GET", "/v1/why/brokers/2", None, "kreplica why broker 2"),
        ("GET", "/v1/plans/plan-1/moves", None, "kreplica plan show plan-1 --moves"),
        ("DELETE", "/v1/plans/plan-1", None, "kreplica plan delete plan-1"),
        ("POST", "/v1/plans/plan-1/cancel", {"rollback": True}, "kreplica plan cancel plan-1 --rollback"),
        ("POST", "/v1/plans/plan-1/cancel", {"rollback": False}, "kreplica plan cancel plan-1"),
        ("PATCH", "/v1/plans/p", {"throttle_bytes_per_second": 9}, "kreplica plan set p --throttle 9"),
        ("PATCH", "/v1/plans/p", {"comment": "x"}, 'PATCH /v1/plans/p {"comment": "x"}'),
        (
            "POST", "/v1/plans",
            {"kind": "reassign", "assignments": [{"topic": "a", "partition": 0, "replicas": [1, 2]}]},
            "kreplica plan make reassign a:0=1,2",
        ),
        ("POST", "/v1/plans", {"kind": "drain", "brokers": [3]}, "kreplica plan make drain 3"),
        (
            "POST", "/v1/plans", {"kind": "replication_factor", "topics": ["a"], "replication_factor": 3},
            "kreplica plan make replication-factor a 3",
        ),
        ("POST", "/v1/plans", {"kind": "rebalance"}, "kreplica plan make rebalance"),
        ("POST", "/v1/elections", {"type": "preferred", "partitions": None}, "kreplica election preferred"),
        (
            "PATCH", "/v1/configs/topics/a", {"set": {"min.insync.replicas": "1"}},
            "kreplica topic config set a min.insync.replicas=1",
        ),
        (
            "POST", "/v1/groups/a%20b/offsets", {"to": {"kind": "latest"}},
            "kreplica group reset 'a b' --latest --execute",
        ),
        ("DELETE", "/v1/groups/a%2Fb", None, "kreplica group delete a/b"),
        ("GET", "/v1/topics", None, "kreplica topic list"),
        ("POST", "/v1/elsewhere", {}, "POST /v1/elsewhere {}"),
    ],
)  # fmt: skip
def test_advice_is_a_command(method, path, body, command):
    """The admin API's advice is shown as a command, or as a request if there is no such command."""
    assert command_of(method, path, body) == command


def entry(number):
    return {"id": f"1-{number}", "at_ms": 1_790_000_000_000 + number, "broker_id": 1, "controller_epoch": 2,
            "kind": "election", "subject": "orders:0", "text": f"change {number}", "details": {}}  # fmt: skip


def test_timeline(admin, kreplica):
    """The timeline is printed oldest first, followed by the brokers that did not respond."""
    admin.answers["GET /v1/timeline"] = {"entries": [entry(2), entry(1)], "problems": ["broker 3 does not answer"]}
    lines = kreplica("timeline", "--limit", "5", "--kind", "election").stdout.splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["1", "2"]
    assert lines[3] == "Incomplete: broker 3 does not answer"
    assert admin.last.query == {"limit": "5", "kind": "election"}


def event(number):
    return f"id: 1-{number}\nevent: timeline\ndata: {json.dumps(entry(number))}\n\n".encode()


def follow(admin, count, *words):
    """Follow the timeline in a process; return the first lines, and the result of the process after Ctrl-C."""
    command = [sys.executable, "-m", "kreplica.cli", "timeline", "--follow", "--admin", admin.url, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    return lines, process.returncode


def test_follow(admin):
    """Old and new entries are printed once, even after a reconnect; Ctrl-C ends the command."""
    admin.answers["GET /v1/timeline"] = {"entries": [entry(2), entry(1)], "problems": []}
    admin.answers["GET /v1/events"] = [b": hello\n\n" + event(2) + event(3), event(3) + event(4), b""]
    lines, status = follow(admin, 4, "--json")
    assert [json.loads(line)["id"] for line in lines] == ["1-1", "1-2", "1-3", "1-4"]
    assert status == 0
    ids = [request.headers.get("last-event-id") for request in admin.requests if request.path == "/v1/events"]
    assert ids[:2] == ["1-2", "1-3"]


def test_follow_one_kind(admin):
    """With a filter by kind, new entries of other kinds are omitted too."""
    other = {**entry(3), "kind": "broker"}
    admin.answers["GET /v1/timeline"] = {"entries": [entry(1)], "problems": []}
    stream = f"event: timeline\ndata: {json.dumps(other)}\n\n".encode() + event(4)
    admin.answers["GET /v1/events"] = [stream, b""]
    lines, _ = follow(admin, 2, "--kind", "election")
    assert [line.split()[-1] for line in lines] == ["1", "4"]


def test_follow_gives_up_without_a_server(admin, kreplica, monkeypatch):
    """The command retries for a while, and then fails."""
    monkeypatch.setattr(timeline, "RETRY_S", 0.001)
    monkeypatch.setattr(timeline, "RETRIES_MAX", 3)
    admin.answers["GET /v1/timeline"] = {"entries": [], "problems": []}
    admin.answers["GET /v1/events"] = 500, "text/html", b"sorry"
    done = kreplica("timeline", "--follow")
    assert done.exit_code == 1
    assert done.stderr.count("retrying") == 2


def test_follow_starts_now(admin, kreplica):
    """--follow prints only new entries, so it cannot be combined with --before."""
    assert kreplica("timeline", "--follow", "--before", "x").exit_code == 2
