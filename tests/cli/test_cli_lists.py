"""Options of long lists, pagination, and the cost of ten thousand rows."""

from __future__ import annotations

import json
import time

import pytest

from kreplica.cli.http.list_options import duration_text
from kreplica.cli.http.session import json_text
from kreplica.cli.terminal import screen

PARTITIONS = [
    {"topic": f"topic-{number // 10}", "partition": number % 10, "leader": 1, "leader_epoch": 7, "replicas": [1, 2, 3],
     "isr": [1, 2] if number % 100 == 0 else [1, 2, 3], "offline_replicas": [], "adding": [], "removing": [],
     "read_only": False}
    for number in range(10_000)
]  # fmt: skip


def test_columns_order_and_limit(admin, kreplica):
    """The options are sent to the broker, which computes and returns only the rows to be shown."""
    rows = [{"name": "a", "size_bytes": 4096}]
    admin.answers["GET /v1/topics"] = {"topics": rows, "next": None, "total": 900, "problems": []}
    options = ("--fields", "name, size_bytes", "--sort", "-size_bytes", "--filter", "size_bytes>1", "--limit", "1")
    done = kreplica("topic", "list", *options)
    assert done.stdout.splitlines() == ["TOPIC  SIZE", "a      4.0 KiB"]
    assert admin.last.query == {
        "fields": "name,size_bytes",
        "sort": "-size_bytes",
        "filter": "size_bytes>1",
        "limit": "1",
        "internal": "false",
    }
    assert len(admin.requests) == 1


def test_sorted_pages_are_read_by_number(admin, kreplica):
    """A sorted list is read to its last page."""
    first = {"groups": [{"group": "a", "lag": 2}], "next": None, "total": 2, "problems": []}
    second = {"groups": [{"group": "b", "lag": 1}], "next": None, "total": 2, "problems": []}
    admin.answers["GET /v1/groups"] = [first, second]
    done = kreplica("group", "list", "--fields", "group,lag", "--sort", "-lag", "--json")
    assert [row["group"] for row in json.loads(done.stdout)["groups"]] == ["a", "b"]
    assert [request.query.get("page") for request in admin.requests] == [None, "2"]


def test_limit_within_a_page(admin, kreplica):
    """A list that ends within a page does not print the position of the next page, which would skip rows."""
    pages = [
        {"topics": [{"name": f"{page}-{number}"} for number in range(1000)], "next": f"page {page + 2}", "total": 9000,
         "problems": []}
        for page in range(3)
    ]  # fmt: skip
    admin.answers["GET /v1/topics"] = pages
    done = json.loads(kreplica("topic", "list", "--limit", "1500", "--json").stdout)
    assert (len(done["topics"]), done["topics"][-1]["name"], done["next"]) == (1500, "1-499", None)
    assert [request.query.get("after") for request in admin.requests] == [None, "page 2"]


@pytest.mark.parametrize(
    ("words", "path", "members"),
    [
        ("acl list", "/v1/acls", {"acls": []}),
        ("broker list", "/v1/brokers", {"brokers": []}),
        ("election list", "/v1/elections", {"needed": [], "pending": []}),
        ("group list", "/v1/groups", {"groups": []}),
        ("partition list", "/v1/partitions", {"partitions": []}),
        ("plan list", "/v1/plans", {"plans": []}),
        ("quota list", "/v1/quotas", {"quotas": []}),
        ("timeline", "/v1/timeline", {"entries": [], "problems": []}),
        ("token list", "/v1/tokens", {"tokens": []}),
        ("topic list", "/v1/topics", {"topics": []}),
        ("user list", "/v1/users", {"users": []}),
    ],
)
def test_each_list_has_a_limit(admin, kreplica, words, path, members):
    """Each list sends its limit to the broker, which computes and returns only the rows to be shown."""
    admin.answers[f"GET {path}"] = {**members, "next": None, "problems": []}
    done = kreplica(*words.split(), "--limit", "3")
    assert (done.exit_code, admin.last.query["limit"]) == (0, "3"), done.output


def test_connections(admin, kreplica):
    """A row shows the client, its library, its user, rates and requests in flight."""
    row = {"address": "10.0.0.7:51000", "client_id": "shop", "software_name": "librdkafka", "software_version": "2.6.1",
           "user": "User:alice", "listener": "SASL_SSL", "bytes_in_rate": 2048.0, "bytes_out_rate": None,
           "in_flight": 2, "idle_ms": 1500, "opened_at_ms": 1_790_000_000_000}  # fmt: skip
    admin.answers["GET /v1/brokers/1/connections"] = {"connections": [row], "next": None, "total": 1, "problems": []}
    line = kreplica("broker", "connections", "1").stdout.splitlines()[1]
    shown = "10.0.0.7:51000 shop librdkafka 2.6.1 User:alice SASL_SSL 2.0 KiB/s - 2 2 s"
    assert " ".join(line.split()).startswith(shown)


def test_ten_thousand_partitions(admin, kreplica):
    """A table of ten thousand partitions takes less than a second of CPU time, and so does its JSON."""
    admin.answers["GET /v1/partitions"] = {"partitions": PARTITIONS, "next": None}
    for options in ((), ("--json",)):
        started_s = time.thread_time()
        done = kreplica("partition", "list", *options)
        took_s = time.thread_time() - started_s
        assert len(done.stdout.splitlines()) > 10_000
        assert took_s < 1.0, options
    shown = kreplica("partition", "list", "--limit", "3").stdout.splitlines()
    assert len(shown) == 4
    assert shown[1].split() == ["topic-0", "0", "1", "7", "1,2,3", "1,2"]


def test_long_json_is_the_same_document():
    """A long list is printed with one line per row, and parses to the same document."""
    document = {"rows": [{"a": [number, "x\ny"]} for number in range(300)], "next": None, "few": [{"b": 1}]}
    text = json_text(document)
    assert json.loads(text) == document
    assert text.count("\n") == 300 + 9
    assert json_text({}) == "{}"
    assert json_text([1]) == "[\n  1\n]"


def test_long_table_in_a_terminal(monkeypatch, capsys):
    """A long table highlights problems, and aligns columns with wide characters."""
    shown = screen.Screen()
    monkeypatch.setattr(shown, "_is_terminal", True)
    rows = [("é" * 3, number, "ok") for number in range(screen.WRAPPED_ROWS_MAX)]
    shown.table(("NAME", "N", ""), [*rows, ("北", 7, screen.problem_text("failed"))], empty_text="")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "ééé     0  ok"
    assert lines[-1].startswith("北      7  ")
    assert "failed" in lines[-1]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(250, "250 ms"), (45_000, "45 s"), (3_600_000, "1 h"), (7_500_000, "2 h 5 min"), (604_800_000, "7 d"),
     (90_000_000, "1 d 1 h"), (604_799_000, "7 d"), (86_399_900, "1 d")],
)  # fmt: skip
def test_durations(milliseconds, text):
    """Durations have at most two units."""
    assert duration_text(milliseconds) == text
