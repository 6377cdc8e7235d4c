"""``kreplica token``."""

from __future__ import annotations

import os

import pytest

ROW = {
    "token_id": "an-id",
    "owner": "User:alice",
    "requester": "User:alice",
    "renewers": ["User:bob"],
    "issued_ms": 0,
    "expires_ms": 86_400_000,
    "max_ms": 604_800_000,
}
SECRET = "cGxhbnRlZC1zZWNyZXQ="
CREATED = {**ROW, "hmac": SECRET, "dry_run": False, "znodes": []}
CHANGED = {**ROW, "dry_run": False, "znodes": []}


def test_list(admin, kreplica):
    admin.answers["GET /v1/tokens"] = {"tokens": [ROW], "next": None}
    done = kreplica("token", "list", "--owner", "User:alice")
    assert admin.last.query == {"limit": "10000", "owner": "User:alice"}
    assert done.stdout.splitlines()[1].split()[:4] == ["an-id", "User:alice", "User:alice", "User:bob"]


def test_creation(admin, kreplica):
    """Options that are absent are not sent, so that the broker's defaults apply."""
    admin.answers["POST /v1/tokens"] = CREATED
    done = kreplica("token", "create")
    assert admin.last.body == {}
    assert SECRET in done.stdout
    words = ("--owner", "User:carol", "--renewer", "User:bob", "--renewer", "User:dave", "--max-lifetime", "12h")
    kreplica("token", "create", *words)
    renewers = ["User:bob", "User:dave"]
    assert admin.last.body == {"owner": "User:carol", "renewers": renewers, "max_lifetime_ms": 43_200_000}


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_settings_of_a_client(admin, kreplica, tmp_path, extra):
    """The secret is written only to the file, which only its owner can read."""
    path = tmp_path / "job.properties"
    admin.answers["POST /v1/tokens"] = CREATED
    done = kreplica("token", "create", "--client-config", str(path), "--mechanism", "SCRAM-SHA-256", *extra)
    assert done.exit_code == 0
    assert SECRET not in done.stdout
    assert path.read_text() == (
        "sasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="an-id" password="{SECRET}" tokenauth="true";\n'
    )
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_existing_and_unused_files(admin, kreplica, tmp_path):
    """No token is created if its secret cannot be stored, and no file remains if no token is created."""
    path = tmp_path / "job.properties"
    path.write_text("mine")
    done = kreplica("token", "create", "--client-config", str(path))
    assert (done.exit_code, admin.requests, path.read_text()) == (1, [], "mine")
    assert "cannot be created: File exists" in done.stderr
    path.unlink()
    assert kreplica("token", "create", "--client-config", str(path)).exit_code == 1
    assert not path.exists()


def test_renewal_and_expiry(admin, kreplica):
    admin.answers["POST /v1/tokens/an-id/renew"] = CHANGED
    admin.answers["POST /v1/tokens/an-id/expire"] = CHANGED
    assert kreplica("token", "renew", "an-id").exit_code == 0
    assert admin.last.body == {}
    kreplica("token", "renew", "an-id", "--period", "1h")
    assert admin.last.body == {"period_ms": 3_600_000}
    kreplica("token", "expire", "an-id", "--after", "90s")
    assert admin.last.body == {"period_ms": 90_000}
    count = len(admin.requests)
    assert kreplica("token", "expire", "an-id", answer="n\n").exit_code == 1
    assert len(admin.requests) == count
    done = kreplica("token", "expire", "an-id", answer="y\n")
    assert admin.last.body == {}
    assert "Token an-id was deleted." in done.stdout
