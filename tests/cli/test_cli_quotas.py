"""``kreplica quota`` and ``kreplica why client``."""

from __future__ import annotations

import pytest

from kreplica.cli.security import quota
from kreplica.cluster.quotas import QUOTA_NAMES
from kreplica.cluster.znodes import DEFAULT_ENTITY

ALICE = {"user": "alice", "client_id": None, "ip": None, "quotas": {"producer_byte_rate": 1000.0}}
PAGE = {"quotas": [ALICE], "next": None}
THROTTLED = {
    "broker_id": 2,
    "quota": "producer_byte_rate",
    "user": "User:alice",
    "client_id": "app\x1b",
    "address": "192.0.2.1",
    "count": 3,
    "throttled_ms": 1500,
    "last_at_ms": 0,
    "until_ms": None,
}


def quota_response(row, *, dry_run=False):
    return {**row, "dry_run": dry_run, "znodes": [{"operation": "set", "path": "/config/users/alice", "data": {}}]}


def test_quota_names_equal_those_of_the_broker():
    assert quota.NAMES == QUOTA_NAMES
    assert quota.DEFAULT == DEFAULT_ENTITY


def test_list_of_quotas(admin, kreplica):
    admin.answers["GET /v1/quotas"] = PAGE
    lines = kreplica("quota", "list").stdout.splitlines()
    assert lines[1].split() == ["alice", "producer_byte_rate", "1,000"]
    admin.answers["GET /v1/quotas"] = {"quotas": [], "next": None}
    assert kreplica("quota", "list").stdout == "No quotas.\n"


def test_list_of_throttled_clients(admin, kreplica):
    """Control characters in client IDs are escaped, and brokers that did not respond are named."""
    admin.answers["GET /v1/throttled-clients"] = {"clients": [THROTTLED], "problems": ["Broker 3 does not respond."]}
    done = kreplica("quota", "list", "--throttled")
    assert done.stdout.splitlines()[1].split()[:6] == [
        "2", "User:alice", "app\\x1b", "192.0.2.1", "producer_byte_rate", "3",
    ]  # fmt: skip
    assert "Broker 3 does not respond." in done.stdout


@pytest.mark.parametrize(
    ("words", "expected", "text"),
    [
        ("user:alice", {"user": "alice"}, "user alice"),
        ("users", {"user": DEFAULT_ENTITY}, "all users without a quota of their own"),
        ("client-id:a,b", {"client_id": "a,b"}, "client ID a,b"),
        ("user:alice,client-id:app", {"user": "alice", "client_id": "app"}, "user alice and client ID app"),
        (
            "users,client-ids",
            {"user": DEFAULT_ENTITY, "client_id": DEFAULT_ENTITY},
            "all client IDs without a quota of their own",
        ),
        ("ip:2001:db8::1", {"ip": "2001:db8::1"}, "IP address 2001:db8::1"),
        ("ips", {"ip": DEFAULT_ENTITY}, "all IP addresses without a quota of their own"),
    ],
)
def test_new_quota(admin, kreplica, words, expected, text):
    answer = {"user": None, "client_id": None, "ip": None, **expected, "quotas": {"request_percentage": 12.5}}
    admin.answers["PATCH /v1/quotas"] = quota_response(answer)
    done = kreplica("quota", "set", words, "request_percentage=12.5", "producer_byte_rate=1000")
    assert admin.last.body == {**expected, "quotas": {"request_percentage": 12.5, "producer_byte_rate": 1000}}
    assert text in done.stdout
    assert done.stdout.endswith(": request_percentage=12.5.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alice", "producer_byte_rate=1"], "expected user:NAME"),
        (["user:", "producer_byte_rate=1"], "expected user:NAME"),
        (["", "producer_byte_rate=1"], "expected user:NAME"),
        (["client-id:a,user:b,", "speed=1"], "'speed': expected one of producer_byte_rate"),
        (["users", "producer_byte_rate"], "expected QUOTA=NUMBER"),
        (["users", "producer_byte_rate=fast"], "expected QUOTA=NUMBER"),
        (["users"], "Missing argument"),
    ],
)
def test_invalid_quota(kreplica, words, message):
    done = kreplica("quota", "set", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_deletion_of_quotas(admin, kreplica):
    """After a confirmation, all quotas of the entity are deleted, or those that are named."""
    admin.answers["GET /v1/quotas"] = PAGE
    admin.answers["PATCH /v1/quotas"] = quota_response({**ALICE, "quotas": {}})
    assert kreplica("quota", "delete", "user:alice", answer="n\n").exit_code == 1
    assert admin.last.method == "GET"
    done = kreplica("quota", "delete", "user:alice", answer="y\n")
    assert done.stdout.endswith("Quotas of user alice: none.\n")
    assert admin.last.body == {"user": "alice", "quotas": {"producer_byte_rate": None}}
    kreplica("quota", "delete", "users", "consumer_byte_rate", "--yes")
    assert admin.last.body == {"user": DEFAULT_ENTITY, "quotas": {"consumer_byte_rate": None}}
    assert "client ID x has no quotas" in kreplica("quota", "delete", "client-id:x").stderr
    admin.answers["PATCH /v1/quotas"] = quota_response({**ALICE, "quotas": {}}, dry_run=True)
    assert "/config/users/alice" in kreplica("quota", "delete", "user:alice", "--dry-run").stdout


def test_why_client(admin, kreplica):
    """The client is passed as query parameters, and the summary is printed."""
    document = {"subject": "client User:alice", "state": "throttled", "summary": "User:alice is throttled.",
                "decided": [], "waits_for": [], "facts": {}, "problems": [], "you_can": [
                    {"text": "Raise it.", "request": {"method": "PATCH", "path": "/v1/quotas", "body": {"user": "a"}}}
                ]}  # fmt: skip
    admin.answers["GET /v1/why/client"] = document
    done = kreplica("why", "client", "User:alice", "--client-id", "app")
    assert admin.last.query == {"principal": "User:alice", "client_id": "app"}
    assert done.stdout.startswith("User:alice is throttled.\n")
    assert "/v1/quotas" in done.stdout
