"""``kreplica group``: members, lag, and offset resets."""

from __future__ import annotations

import json

import pytest

OFFSETS = {
    "group": "kitchen",
    "offsets": [
        {"topic": "orders", "partition": 0, "before": 10, "after": 4},
        {"topic": "orders", "partition": 1, "before": None, "after": 7},
    ],
    "dry_run": True,
}


def test_groups_are_listed(admin, kreplica):
    """The list shows the groups of all coordinators, and a notice if one did not respond."""
    row = {"group": "kitchen", "type": "consumer", "state": "Stable", "coordinator": 2, "members": 3,
           "topics": ["orders"], "partitions": 6, "lag": 70, "partitions_without_commit": 2,
           "status": "WARN"}  # fmt: skip
    problems = ["broker 3 does not answer"]
    admin.answers["GET /v1/groups"] = {"groups": [row], "next": None, "is_complete": False, "problems": problems}
    lines = kreplica("group", "list").stdout.splitlines()
    assert lines[1].split() == ["kitchen", "consumer", "Stable", "2", "3", "orders", "6", "70", "2", "WARN"]
    assert lines[2:] == ["Incomplete: some brokers did not respond.", "  broker 3 does not answer"]
    kreplica("group", "list", "--topic", "orders")
    assert admin.last.query["topic"] == "orders"


def test_group_is_described(admin, kreplica):
    """The output shows the members and their partitions."""
    member = {"member_id": "m-1", "client_id": "c", "client_host": "/127.0.0.1", "instance_id": None,
              "assignment": [{"topic": "orders", "partitions": [0, 2]}]}  # fmt: skip
    admin.answers["GET /v1/groups/kitchen"] = {"group": "kitchen", "type": "classic", "protocol_type": "consumer",
                                               "state": "Stable", "coordinator": 1, "members": [member],
                                               "offsets": []}  # fmt: skip
    shown = kreplica("group", "show", "kitchen").stdout
    assert "coordinator  1\n" in shown
    assert shown.splitlines()[-1].split() == ["m-1", "c", "/127.0.0.1", "-", "orders:0,2"]


def test_lag(admin, kreplica):
    """The output shows the lag and status per partition."""
    row = {"topic": "orders", "partition": 0, "committed_offset": 4, "committed_leader_epoch": 0,
           "committed_at_ms": 1_790_000_000_000, "metadata": "", "log_end_offset": 10, "lag": 6,
           "status": "STOPPED"}  # fmt: skip
    admin.answers["GET /v1/groups/kitchen/lag"] = {"group": "kitchen", "state": "Empty", "status": "STOPPED", "lag": 6,
                                                   "partitions": [row]}  # fmt: skip
    shown = kreplica("group", "lag", "kitchen").stdout
    assert "lag     6 records\n" in shown
    assert shown.splitlines()[-1].split()[:6] == ["orders", "0", "4", "10", "6", "STOPPED"]
    assert "no commit since" not in shown
    admin.answers["GET /v1/groups/kitchen/lag"]["no_commit_since_ms"] = 1_790_000_000_000
    assert "no commit since  2026-09-21 " in kreplica("group", "lag", "kitchen").stdout


def test_group_is_deleted_after_confirmation(admin, kreplica):
    admin.answers["DELETE /v1/groups/kitchen"] = {"group": "kitchen", "dry_run": False}
    assert kreplica("group", "delete", "kitchen", answer="\n").exit_code == 1
    assert not admin.requests
    assert kreplica("group", "delete", "kitchen", "-y").stdout == "Group kitchen was deleted.\n"
    assert "can be deleted" in kreplica("group", "delete", "kitchen", "--dry-run").stdout
    assert admin.last.query == {"dry_run": "true"}


def test_reset_without_execute_changes_nothing(admin, kreplica):
    """Without --execute, the command shows the new offsets and the option that commits them."""
    admin.answers["POST /v1/groups/kitchen/offsets"] = OFFSETS
    shown = kreplica("group", "reset", "kitchen", "--earliest").stdout
    assert admin.last.query == {"dry_run": "true"}
    assert admin.last.body == {"to": {"kind": "earliest"}}
    lines = shown.splitlines()
    assert lines[1].split() == ["orders", "0", "10", "4", "-6"]
    assert lines[2].split() == ["orders", "1", "-", "7", "-"]
    assert lines[3] == "Nothing was changed.  Use --execute to commit these offsets."
    assert json.loads(kreplica("group", "reset", "kitchen", "--latest", "--json").stdout) == OFFSETS


def test_reset_with_execute(admin, kreplica):
    admin.answers["POST /v1/groups/kitchen/offsets"] = {**OFFSETS, "dry_run": False}
    shown = kreplica("group", "reset", "kitchen", "--latest", "--execute").stdout
    assert admin.last.query == {"dry_run": "false"}
    assert shown.splitlines()[-1] == "The new offsets of group kitchen were committed."


@pytest.mark.parametrize(
    ("words", "goal"),
    [
        (["--time", "1790000000000"], {"kind": "timestamp", "value": 1_790_000_000_000}),
        (["--time", "2026-09-21T14:13:20+00:00"], {"kind": "timestamp", "value": 1_790_000_000_000}),
        (["--duration", "1h30m"], {"kind": "duration", "value": 5_400_000}),
        (["--shift", "-100"], {"kind": "shift", "value": -100}),
        (["--offset", "0"], {"kind": "offset", "value": 0}),
    ],
)
def test_reset_targets(admin, kreplica, words, goal):
    """The target of a reset is a time, a duration, a number of records, or an offset."""
    admin.answers["POST /v1/groups/kitchen/offsets"] = OFFSETS
    assert kreplica("group", "reset", "kitchen", *words).exit_code == 0
    assert admin.last.body == {"to": goal}


def test_reset_of_some_partitions(admin, kreplica):
    """Topic options are combined; a topic given without partition numbers means all its partitions."""
    admin.answers["POST /v1/groups/kitchen/offsets"] = OFFSETS
    kreplica("group", "reset", "kitchen", "--earliest", "-t", "a:0,4-6", "-t", "a:1", "-t", "b", "-t", "b:3")
    assert admin.last.body["topics"] == {"a": [0, 1, 4, 5, 6], "b": None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "specify exactly one of --earliest, --latest, --time, --duration, --shift, --offset"),
        (["--earliest", "--latest"], "specify exactly one of"),
        (["--time", "yesterday"], "'yesterday': expected a time"),
        (["--duration", "soon"], "'soon': expected a duration"),
        (["--earliest", "-t", "a:x"], "'a:x': expected TOPIC or TOPIC:PARTITIONS"),
        (["--earliest", "-t", "a:5-2"], "expected TOPIC or TOPIC:PARTITIONS"),
    ],
)
def test_invalid_arguments(admin, kreplica, words, message):
    """The error has the reason, and no request is sent."""
    done = kreplica("group", "reset", "kitchen", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not admin.requests
