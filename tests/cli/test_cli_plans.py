"""``kreplica plan``: dry run, confirmation, progress, and changes to plans."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from kreplica.cli.plans import watch

MOVE = {"number": 0, "topic": "orders", "partition": 0, "action": "move", "from": [1, 2], "to": [2, 3],
        "bytes": 3 << 30, "bytes_done": None, "state": "waiting", "reason": None}  # fmt: skip
PLAN_ID = "plan-0000000001"


def plan(state="running", *, finished=1, reason=None, number=1):
    return {
        "id": f"plan-{number:010}", "kind": "drain", "state": state, "created_at_ms": 1_790_000_000_000,
        "ended_at_ms": None, "comment": "disks", "request": {}, "throttle_bytes_per_second": 50_000_000,
        "moves_at_once": 5, "reason": reason,
        "progress": {"moves": 4, "waiting": 4 - finished, "moving": 0, "finished": finished, "failed": 0,
                     "bytes": 4 << 30, "bytes_done": finished << 30, "eta_seconds": 300},
    }  # fmt: skip


PREVIEW = {
    "plan": plan("pending", finished=0), "moves": [MOVE] * 25, "moves_count": 30, "bytes": 90 << 30,
    "eta_seconds": 7260, "warnings": ["broker 3 has little space"], "dry_run": True,
    "brokers": [{"broker_id": 1, "replicas_before": 6, "replicas_after": 0, "leaders_before": 2, "leaders_after": 2,
                 "bytes_in": 0, "bytes_out": 90 << 30}],
    "znodes": [{"operation": "create", "path": f"/kreplica/plans/{PLAN_ID}", "data": {"version": 1}}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Poll the progress without a delay."""
    monkeypatch.setattr(watch, "POLL_S", 0.001)


def test_plan_is_created_and_followed(admin, kreplica):
    """After the preview is confirmed, the plan is created, and the command ends when it is completed."""
    admin.answers["POST /v1/plans"] = [PREVIEW, {**PREVIEW, "dry_run": False}]
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan(finished=3), plan("completed", finished=4)]
    done = kreplica("plan", "make", "drain", "1", "--throttle", "50MB", "--comment", "disks", answer="y\n")
    assert done.exit_code == 0, done.output
    previewed, made = admin.requests[:2]
    assert previewed.query == {"dry_run": "true"}
    assert made.query == {}
    assert previewed.body == made.body == {
        "kind": "drain", "brokers": [1], "throttle_bytes_per_second": 50_000_000, "comment": "disks",
    }  # fmt: skip
    out = done.stdout
    assert "orders          0  move    1,2   2,3  3.0 GiB\n" in out
    assert "and 10 more\n" in out
    assert "     1  6 -> 0    2        0 B      90.0 GiB\n" in out
    assert "30 moves, 90.0 GiB, about 2 h 1 min\n" in out
    assert "Warning: broker 3 has little space\n" in out
    assert out.endswith(f"Created plan {PLAN_ID}.\nPlan {PLAN_ID} completed (4 of 4 moves, 4.0 GiB of 4.0 GiB)\n")
    assert "Proceed?" in done.stderr


def test_declined_plan_is_not_created(admin, kreplica):
    admin.answers["POST /v1/plans"] = PREVIEW
    done = kreplica("plan", "make", "drain", "1", answer="n\n")
    assert done.exit_code == 1
    assert [request.query for request in admin.requests] == [{"dry_run": "true"}]


def test_dry_run_shows_the_znodes(admin, kreplica):
    admin.answers["POST /v1/plans"] = PREVIEW
    out = kreplica("plan", "make", "rebalance", "--topic", "orders", "--dry-run").stdout
    assert admin.last.body == {"kind": "rebalance", "topics": ["orders"]}
    assert out.splitlines()[-1] == f'  create /kreplica/plans/{PLAN_ID}  {{"version": 1}}'
    assert len(admin.requests) == 1


def test_balanced_cluster_gets_no_plan(admin, kreplica):
    empty_text = {**PREVIEW, "moves": [], "moves_count": 0, "bytes": 0, "eta_seconds": 0, "warnings": []}
    admin.answers["POST /v1/plans"] = empty_text
    done = kreplica("plan", "make", "rebalance", "--yes")
    assert done.stdout.endswith("No moves are necessary.\n")
    assert len(admin.requests) == 1


def test_detach(admin, kreplica):
    """With --detach, the command does not follow the plan."""
    admin.answers["POST /v1/plans"] = PREVIEW
    done = kreplica("plan", "make", "add-brokers", "4", "5", "--yes", "--detach")
    assert done.stdout.endswith(f"Created plan {PLAN_ID}.\n")
    assert admin.last.body == {"kind": "add_brokers", "brokers": [4, 5]}


def test_json(admin, kreplica):
    """With --json, the output is the response, and the command neither asks for confirmation nor waits."""
    admin.answers["POST /v1/plans"] = PREVIEW
    assert kreplica("plan", "make", "rebalance", "--json").exit_code == 2, "--yes is missing"
    assert not admin.requests
    assert json.loads(kreplica("plan", "make", "rebalance", "--json", "--yes").stdout) == PREVIEW
    assert admin.last.query == {"dry_run": "false"}
    assert json.loads(kreplica("plan", "make", "rebalance", "--json", "--dry-run").stdout) == PREVIEW
    assert admin.last.query == {"dry_run": "true"}


@pytest.mark.parametrize(
    ("words", "request_body"),
    [
        (
            ["reassign", "orders:0=1,2", "orders:1=3"],
            {
                "kind": "reassign",
                "assignments": [
                    {"topic": "orders", "partition": 0, "replicas": [1, 2]},
                    {"topic": "orders", "partition": 1, "replicas": [3]},
                ],
            },
        ),
        (
            ["reassign", "--file", "moves.json", "--force"],
            {"kind": "reassign", "force": True, "assignments": [{"topic": "a", "partition": 0, "replicas": [9]}]},
        ),
        (
            ["replication-factor", "a", "b", "3", "--moves-at-once", "2"],
            {"kind": "replication_factor", "topics": ["a", "b"], "replication_factor": 3, "moves_at_once": 2},
        ),
        (["rebalance"], {"kind": "rebalance"}),
        (
            ["rebalance", "--weights", "weights.json"],
            {"kind": "rebalance", "weights": [{"topic": "a", "partition": 0, "weight": 7}]},
        ),
        (["add-partitions", "a", "8"], {"kind": "add_partitions", "topic": "a", "partitions": 8}),
        (
            ["remove-partitions", "a", "2", "--wait", "10m"],
            {"kind": "remove_partitions", "topic": "a", "partitions": 2, "wait_ms": 600_000},
        ),
    ],
)
def test_plan_kinds(admin, kreplica, words, request_body, tmp_path, monkeypatch):
    """The arguments of each kind of plan become its request."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moves.json").write_text(
        '{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [9], "log_dirs": ["any"]}]}'
    )
    (tmp_path / "weights.json").write_text('{"weights": [{"topic": "a", "partition": 0, "weight": 7}], "more": 1}')
    admin.answers["POST /v1/plans"] = PREVIEW
    assert kreplica("plan", "make", *words, "--dry-run").exit_code == 0
    assert admin.last.body == request_body


@pytest.mark.parametrize(
    ("words", "kind"), [(["broker", "drain", "1"], "drain"), (["topic", "shrink", "a", "2"], "remove_partitions")]
)
def test_aliases(admin, kreplica, words, kind):
    admin.answers["POST /v1/plans"] = PREVIEW
    assert kreplica(*words, "--dry-run").exit_code == 0
    assert admin.last.body["kind"] == kind


def test_failed_plan(admin, kreplica):
    """If the plan fails, the output shows the reason, and the exit status is not 0."""
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan("failed", reason="broker 2 is gone")]
    done = kreplica("plan", "watch", PLAN_ID)
    assert done.exit_code == 1
    assert done.stdout == f"Plan {PLAN_ID} failed: broker 2 is gone (1 of 4 moves, 1.0 GiB of 4.0 GiB)\n"


def test_finished_drain_leaves_its_brokers_cordoned(admin, kreplica):
    """When a drain has ended, the output names those of its brokers that are still cordoned."""
    running, ended = ({**plan(state), "request": {"brokers": [2, 1]}} for state in ("running", "completed"))
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [running, ended]
    admin.answers["GET /v1/cluster"] = {"cordoned_brokers": [1, 3]}
    assert "cordoned" not in kreplica("plan", "show", PLAN_ID).stdout
    text = "Broker 1 is cordoned: it gets no new replicas.\n"
    assert kreplica("plan", "watch", PLAN_ID).stdout.endswith(f"4.0 GiB)\n{text}")
    assert text in kreplica("plan", "show", PLAN_ID).stdout
    admin.answers["GET /v1/cluster"] = {"cordoned_brokers": [3]}
    assert "cordoned" not in kreplica("plan", "show", PLAN_ID).stdout


def test_progress_as_json(admin, kreplica):
    """Each change of the progress is printed as one line."""
    documents = [plan(), plan(), plan(finished=2), plan("completed", finished=4)]
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = list(documents)
    done = kreplica("plan", "watch", PLAN_ID, "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [documents[0], *documents[2:]]


def test_broker_dies_while_a_plan_is_followed(admin, kreplica):
    """A plan is still followed if requests fail for a while."""
    broken = 200, "text/plain", b"going away"
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), broken, broken, plan("completed", finished=4)]
    done = kreplica("plan", "watch", PLAN_ID)
    assert done.exit_code == 0
    assert done.stderr.count("retrying") == 1


CLEARS = "\x1b[2J\x9b2J\x07"


def test_control_characters_in_a_plan_are_escaped(admin, kreplica):
    """Control characters in the reason and the state are escaped."""
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan("failed", reason=f"broker {CLEARS}2")]
    done = kreplica("plan", "watch", PLAN_ID)
    assert r"broker \x1b[2J\x9b2J\x072" in done.stdout
    assert not set(CLEARS) & set("\x1b\x9b\x07") & set(done.output)


def test_progress_bars(admin, kreplica, monkeypatch):
    """On a terminal, progress bars show moves and bytes."""
    monkeypatch.setattr(watch, "Console", lambda **options: Console(**options, force_terminal=True, width=100))
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan("completed", finished=4)]
    drawn = kreplica("plan", "watch", PLAN_ID).stderr
    assert "1 of 4, running" in drawn
    assert "1.0 GiB of 4.0 GiB, about 5 min left" in drawn
    assert "4 of 4, completed" in drawn


def test_ctrl_c_leaves_the_plan_running(admin):
    """Ctrl-C leaves the plan running, and the message says how to follow it again."""
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = plan()
    command = [sys.executable, "-m", "kreplica.cli", "plan", "watch", PLAN_ID, "--json", "--admin", admin.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == plan()
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=30)
    assert process.returncode == watch.INTERRUPTED
    assert output == (
        f"Plan {PLAN_ID} is still running.  Follow it with kreplica plan watch {PLAN_ID}, "
        f"cancel it with kreplica plan cancel {PLAN_ID}.\n"
    )
    assert {request.method for request in admin.requests} == {"GET"}


def test_ctrl_c_during_a_request(admin):
    is_asked, may_answer = threading.Event(), threading.Event()

    def think(_):
        is_asked.set()
        may_answer.wait(30)
        return 200, "application/json", b"{}"

    admin.answer = think
    command = [sys.executable, "-m", "kreplica.cli", "plan", "watch", PLAN_ID, "--admin", admin.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        is_asked.wait(30)
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=30)
        may_answer.set()
    assert process.returncode == watch.INTERRUPTED
    assert output.startswith(f"Plan {PLAN_ID} is still running.")


def test_plans_are_listed_and_shown(admin, kreplica):
    """The list shows one row per plan; a single plan is shown with its moves on request."""
    admin.answers["GET /v1/plans"] = {"plans": [plan("failed", number=2), plan()], "next": None}
    lines = kreplica("plan", "list").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["plan-0000000002", "drain", "failed"], [PLAN_ID, "drain", "running"],
    ]  # fmt: skip
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = plan()
    shown = kreplica("plan", "show", PLAN_ID).stdout
    assert "throttle          47.7 MiB/s\n" in shown
    assert "moves             1 of 4 (0 moving, 3 waiting)\n" in shown
    admin.answers[f"GET /v1/plans/{PLAN_ID}/moves"] = {"moves": [MOVE], "next": None}
    shown = kreplica("plan", "show", PLAN_ID, "--moves").stdout
    assert "0  orders          0  move    1,2   2,3  3.0 GiB  waiting" in shown
    moves = json.loads(kreplica("plan", "show", PLAN_ID, "--moves", "--json").stdout)
    assert moves == {"moves": [MOVE], "next": None}


def test_plan_is_changed_cancelled_and_deleted(admin, kreplica):
    answer = {**plan(), "dry_run": False, "znodes": []}
    admin.answers[f"PATCH /v1/plans/{PLAN_ID}"] = answer
    kreplica("plan", "set", PLAN_ID, "--throttle", "1MiB", "--moves-at-once", "9")
    assert admin.last.body == {"throttle_bytes_per_second": 1 << 20, "moves_at_once": 9}
    kreplica("plan", "set", PLAN_ID, "--no-throttle")
    assert admin.last.body == {"throttle_bytes_per_second": None}
    admin.answers[f"POST /v1/plans/{PLAN_ID}/cancel"] = answer
    assert kreplica("plan", "cancel", PLAN_ID, "--rollback", "--yes").exit_code == 0
    assert admin.last.body == {"rollback": True}
    admin.answers[f"DELETE /v1/plans/{PLAN_ID}"] = {"id": PLAN_ID, "dry_run": False, "znodes": []}
    assert kreplica("plan", "delete", PLAN_ID).stdout == f"Plan {PLAN_ID} was deleted.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["make", "reassign"], "specify partitions and their brokers"),
        (["make", "reassign", "orders:0"], "expected TOPIC:PARTITION=BROKERS"),
        (["make", "reassign", "--file", "bad.json"], 'bad.json: expected {"partitions"'),
        (["make", "drain"], "Missing argument 'BROKER...'"),
        (["make", "rebalance", "--throttle", "fast"], "'fast': expected a number of bytes"),
        (["set", "p"], "specify --throttle, --no-throttle or --moves-at-once"),
        (["set", "p", "--throttle", "1", "--no-throttle"], "--throttle and --no-throttle cannot be combined"),
    ],
)
def test_invalid_arguments(admin, kreplica, words, message, tmp_path, monkeypatch):
    """The error has the reason, and no request is sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"partitions": [1]}')
    done = kreplica("plan", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not admin.requests
