"""``kreplica plan``: a preview, a question, progress until the end; and what is done to plans."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from kreplica.cli.commands import plan_watch

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
    """Progress is asked for at once."""
    monkeypatch.setattr(plan_watch, "POLL_S", 0.001)


def test_a_plan_is_made_and_watched(admin, kreplica):
    """One sees what it would do, says yes, and is told when it is completed."""
    admin.answers["POST /v1/plans"] = [PREVIEW, {**PREVIEW, "dry_run": False}]
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan(finished=3), plan("completed", finished=4)]
    done = kreplica("plan", "make", "drain", "1", "--throttle", "50MB", "--comment", "disks", answer="y\n")
    assert done.exit_code == 0, done.output
    previewed, made = admin.asked[:2]
    assert previewed.query == {"dry_run": "true"}
    assert made.query == {}
    assert previewed.body == made.body == {
        "kind": "drain", "brokers": [1], "throttle_bytes_per_second": 50_000_000, "comment": "disks",
    }  # fmt: skip
    out = done.stdout
    assert "orders          0  move  1,2   2,3  3.0 GiB\n" in out
    assert "and 10 more\n" in out
    assert "     1  6 -> 0    2        0 B      90.0 GiB\n" in out
    assert "30 moves, 90.0 GiB, about 2 h 1 min\n" in out
    assert "Warning: broker 3 has little space\n" in out
    assert out.endswith(f"Created plan {PLAN_ID}.\nPlan {PLAN_ID} is completed (4 of 4 moves, 4.0 GiB of 4.0 GiB)\n")
    assert "Proceed?" in done.stderr


def test_no_is_no(admin, kreplica):
    """Nothing is made by somebody who saw the preview and did not want it."""
    admin.answers["POST /v1/plans"] = PREVIEW
    done = kreplica("plan", "make", "drain", "1", answer="n\n")
    assert done.exit_code == 1
    assert [asked.query for asked in admin.asked] == [{"dry_run": "true"}]


def test_a_dry_run_shows_the_znodes(admin, kreplica):
    """The preview, and what would be written."""
    admin.answers["POST /v1/plans"] = PREVIEW
    out = kreplica("plan", "make", "rebalance", "--topic", "orders", "--dry-run").stdout
    assert admin.last.body == {"kind": "rebalance", "topics": ["orders"]}
    assert out.splitlines()[-1] == f'  create /kreplica/plans/{PLAN_ID}  {{"version": 1}}'
    assert len(admin.asked) == 1


def test_nothing_to_do(admin, kreplica):
    """A cluster that is as it should be gets no plan."""
    nothing = {**PREVIEW, "moves": [], "moves_count": 0, "bytes": 0, "eta_seconds": 0, "warnings": []}
    admin.answers["POST /v1/plans"] = nothing
    done = kreplica("plan", "make", "rebalance", "--yes")
    assert done.stdout.endswith("Nothing to do.\n")
    assert len(admin.asked) == 1


def test_one_need_not_wait(admin, kreplica):
    """With --detach the command does not follow the plan."""
    admin.answers["POST /v1/plans"] = PREVIEW
    done = kreplica("plan", "make", "add-brokers", "4", "5", "--yes", "--detach")
    assert done.stdout.endswith(f"Created plan {PLAN_ID}.\n")
    assert admin.last.body == {"kind": "add_brokers", "brokers": [4, 5]}


def test_programs_get_the_document(admin, kreplica):
    """With --json: the answer, no question, no waiting."""
    admin.answers["POST /v1/plans"] = PREVIEW
    assert kreplica("plan", "make", "rebalance", "--json").exit_code == 2, "--yes is missing"
    assert not admin.asked
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
def test_each_kind(admin, kreplica, words, request_body, tmp_path, monkeypatch):
    """What one types is what is asked for."""
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
def test_plans_by_other_names(admin, kreplica, words, kind):
    """Where one looks for them."""
    admin.answers["POST /v1/plans"] = PREVIEW
    assert kreplica(*words, "--dry-run").exit_code == 0
    assert admin.last.body["kind"] == kind


def test_a_plan_that_fails(admin, kreplica):
    """Whoever waits is told why, and scripts by the exit status."""
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan("failed", reason="broker 2 is gone")]
    done = kreplica("plan", "watch", PLAN_ID)
    assert done.exit_code == 1
    assert done.stdout == f"Plan {PLAN_ID} has failed: broker 2 is gone (1 of 4 moves, 1.0 GiB of 4.0 GiB)\n"


def test_progress_for_programs(admin, kreplica):
    """Each change is a line."""
    documents = [plan(), plan(), plan(finished=2), plan("completed", finished=4)]
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = list(documents)
    done = kreplica("plan", "watch", PLAN_ID, "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [documents[0], *documents[2:]]


def test_a_broker_that_dies_does_not_end_the_watching(admin, kreplica):
    """Its answers are missed for a while."""
    broken = 200, "text/plain", b"going away"
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), broken, broken, plan("completed", finished=4)]
    done = kreplica("plan", "watch", PLAN_ID)
    assert done.exit_code == 0
    assert done.stderr.count("trying again") == 1


CLEARS = "\x1b[2J\x9b2J\x07"


def test_a_reason_does_not_control_the_terminal(admin, kreplica):
    """Escapes in what the server says are shown, in a plan's end and in its state."""
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan("failed", reason=f"broker {CLEARS}2")]
    done = kreplica("plan", "watch", PLAN_ID)
    assert r"broker \x1b[2J\x9b2J\x072" in done.stdout
    assert not set(CLEARS) & set("\x1b\x9b\x07") & set(done.output)


def test_the_bars(admin, kreplica, monkeypatch):
    """On a terminal, moves and bytes grow."""
    monkeypatch.setattr(plan_watch, "Console", lambda **options: Console(**options, force_terminal=True, width=100))
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = [plan(), plan("completed", finished=4)]
    drawn = kreplica("plan", "watch", PLAN_ID).stderr
    assert "1 of 4, running" in drawn
    assert "1.0 GiB of 4.0 GiB, about 5 min left" in drawn
    assert "4 of 4, completed" in drawn


def test_control_c_leaves_the_plan_running(admin):
    """It says so, and how to go on."""
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = plan()
    command = [sys.executable, "-m", "kreplica.cli", "plan", "watch", PLAN_ID, "--json", "--admin", admin.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == plan()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == plan_watch.INTERRUPTED
    assert told == (
        f"Plan {PLAN_ID} is still running.  Follow it with kreplica plan watch {PLAN_ID}, "
        f"cancel it with kreplica plan cancel {PLAN_ID}.\n"
    )
    assert {asked.method for asked in admin.asked} == {"GET"}


def test_control_c_while_the_server_thinks(admin):
    """It is the same at any moment."""
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
        _, told = process.communicate(timeout=30)
        may_answer.set()
    assert process.returncode == plan_watch.INTERRUPTED
    assert told.startswith(f"Plan {PLAN_ID} is still running.")


def test_plans_are_listed_and_shown(admin, kreplica):
    """A row each; one of them whole, and its moves."""
    admin.answers["GET /v1/plans"] = {"plans": [plan("failed", number=2), plan()], "next": None}
    lines = kreplica("plan", "list").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["plan-0000000002", "drain", "failed"], [PLAN_ID, "drain", "running"],
    ]  # fmt: skip
    admin.answers[f"GET /v1/plans/{PLAN_ID}"] = plan()
    shown = kreplica("plan", "show", PLAN_ID).stdout
    assert "throttle       47.7 MiB/s\n" in shown
    assert "moves          1 of 4 (0 moving, 3 waiting)\n" in shown
    admin.answers[f"GET /v1/plans/{PLAN_ID}/moves"] = {"moves": [MOVE], "next": None}
    shown = kreplica("plan", "show", PLAN_ID, "--moves").stdout
    assert "0  orders          0  move  1,2   2,3  3.0 GiB  waiting" in shown
    moves = json.loads(kreplica("plan", "show", PLAN_ID, "--moves", "--json").stdout)
    assert moves == {"moves": [MOVE], "next": None}


def test_a_plan_is_changed_cancelled_and_forgotten(admin, kreplica):
    """Its speed while it goes; its end; and after that."""
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
        (["make", "reassign"], "name partitions and their brokers"),
        (["make", "reassign", "orders:0"], "TOPIC:PARTITION=BROKERS is expected"),
        (["make", "reassign", "--file", "bad.json"], 'bad.json does not say {"partitions"'),
        (["make", "drain"], "Missing argument 'BROKER...'"),
        (["make", "rebalance", "--throttle", "fast"], "'fast': a number of bytes is expected"),
        (["set", "p"], "give --throttle, --no-throttle or --moves-at-once"),
        (["set", "p", "--throttle", "1", "--no-throttle"], "either --throttle or --no-throttle"),
    ],
)
def test_mistyped(admin, kreplica, words, message, tmp_path, monkeypatch):
    """What is wrong is said, and nothing is asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"partitions": [1]}')
    done = kreplica("plan", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not admin.asked
