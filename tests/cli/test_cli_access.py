"""``kreplica acl``, ``kreplica user``, ``kreplica why access``, and credentials for the admin API."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_admin import run_here

from kreplica.cli import main
from kreplica.cli.http.credentials import Credentials
from kreplica.cli.http.rest import Server
from kreplica.cli.terminal import access_types
from kreplica.security.acls.acl import CLUSTER_NAME, AclOperation, ResourceType

SECRET = "planted-secret-1"
ROW = {
    "resource_type": "topic",
    "resource_name": "orders",
    "pattern_type": "literal",
    "principal": "User:alice",
    "host": "*",
    "operation": "read",
    "permission": "allow",
}
CLUSTER = {"users": [], "next": None}


def acl_response(acls, *, dry_run=False):
    return {"acls": acls, "dry_run": dry_run, "znodes": [{"operation": "create", "path": "/kafka-acl/Topic/orders"}]}


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\nmore lines are ignored\n")
    return str(path)


# --- credentials -----------------------------------------------------------------------------------------------------


def test_user_and_password(admin, kreplica, secret):
    """The password is read from the file and sent with each request."""
    admin.answers["GET /v1/users"] = CLUSTER
    assert kreplica("user", "list", "--user", "bob", "--password-file", secret).exit_code == 0
    assert admin.last.headers["authorization"] == f"Basic {b64encode(f'bob:{SECRET}'.encode()).decode()}"


def test_password_of_standard_input(admin, kreplica):
    admin.answers["GET /v1/users"] = CLUSTER
    done = kreplica("user", "list", "--user", "bob", "--password-file", "-", answer=f"{SECRET}\n")
    assert done.exit_code == 0
    assert admin.last.headers["authorization"] == f"Basic {b64encode(f'bob:{SECRET}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--user", "bob"], "--user requires --password-file"),
        (["--password-file", "FILE"], "--password-file requires --user"),
        (["--user", "bob", "--password-file", "FILE", "--token-file", "FILE"], "use either --token-file or --user"),
        (["--user", "bob", "--password-file", "EMPTY"], "does not contain a password"),
        (["--certificate-file", "FILE"], "does not contain a private key and a certificate"),
    ],
)
def test_invalid_credential_options(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("x" * 20)
    Path("EMPTY").write_text("\n")
    done = CliRunner().invoke(main, ["user", "list", *words], obj=run_here)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_rejected_credentials(admin, kreplica, secret):
    """The error names the options for credentials that the server accepts, and no secret."""
    problem = {"title": "X", "status": 401, "detail": "wrong", "accepts": ["token", "basic", "certificate"]}
    admin.answers["GET /v1/users"] = 401, {**problem, "what_to_do": "Send Authorization: Bearer TOKEN."}
    done = kreplica("user", "list", "--user", "bob", "--password-file", secret)
    assert done.stderr == (
        "kreplica: wrong\nUse --token-file or --user or --certificate-file with valid credentials.\n"
    )


def test_secrets_are_not_in_representations():
    shown = repr((Credentials("bob", SECRET), Server("http://x", SECRET, user="bob", password=SECRET)))
    assert SECRET not in shown


# --- ACLs ------------------------------------------------------------------------------------------------------------


def test_acl_names_equal_those_of_the_broker():
    """The command line, which does not import the broker, has the same operations and resource types."""
    assert set(access_types.OPERATIONS) == {each.name.lower() for each in AclOperation} - {"any"}
    assert set(access_types.RESOURCE_TYPES) == {each.name.lower() for each in ResourceType} - {"any"}
    assert access_types.CLUSTER_NAME == CLUSTER_NAME


def test_list_of_acls(admin, kreplica):
    admin.answers["GET /v1/acls"] = {"acls": [ROW], "next": None}
    done = kreplica("acl", "list", "orders", "--operation", "Read")
    assert admin.last.query == {
        "limit": "10000", "operation": "read", "resource_type": "topic", "resource_name": "orders",
        "pattern_type": "match",
    }  # fmt: skip
    assert done.stdout.splitlines()[1].split() == ["topic", "orders", "literal", "User:alice", "*", "read", "allow"]


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("orders", ("topic", "orders")),
        ("topic:cluster", ("topic", "cluster")),
        ("group:a:b", ("group", "a:b")),
        ("transactional-id:t", ("transactional_id", "t")),
        ("cluster", ("cluster", "kafka-cluster")),
        ("*", ("topic", "*")),
    ],
)
def test_new_acls(admin, kreplica, resource, expected):
    admin.answers["POST /v1/acls"] = acl_response([ROW])
    done = kreplica("acl", "create", "User:alice", "Read,DescribeConfigs", resource, "--prefixed", "--deny")
    assert done.exit_code == 0
    kind, name = expected
    row = {**ROW, "resource_type": kind, "resource_name": name, "pattern_type": "prefixed", "permission": "deny"}
    assert admin.last.body == {"acls": [row, {**row, "operation": "describe_configs"}]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alice", "Read", "orders"], "such as User:alice"),
        (["User:alice", "Reed", "orders"], "expected one of All, Read"),
        (["User:alice", "Read", "topics:orders"], "expected a topic, cluster, or one of topic:NAME"),
    ],
)
def test_invalid_acl(kreplica, words, message):
    done = kreplica("acl", "create", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_deletion_of_acls(admin, kreplica):
    """The ACLs are shown before the confirmation; a dry run needs no confirmation."""
    admin.answers["GET /v1/acls"] = {"acls": [ROW], "next": None}
    admin.answers["DELETE /v1/acls"] = acl_response([ROW])
    assert kreplica("acl", "delete").exit_code == 2
    assert kreplica("acl", "delete", "orders", answer="n\n").exit_code == 1
    assert [each.method for each in admin.requests] == ["GET"]
    done = kreplica("acl", "delete", "orders", "--principal", "User:alice", answer="y\n")
    assert done.stdout.endswith("Deleted 1 ACL.\n")
    query = {"resource_type": "topic", "resource_name": "orders", "pattern_type": "literal", "principal": "User:alice"}
    assert admin.last.query == {**query, "dry_run": "false"}
    admin.answers["DELETE /v1/acls"] = acl_response([ROW], dry_run=True)
    assert "/kafka-acl/Topic/orders" in kreplica("acl", "delete", "orders", "--dry-run").stdout


# --- users -----------------------------------------------------------------------------------------------------------


def test_list_of_users(admin, kreplica):
    mechanisms = [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]
    admin.answers["GET /v1/users"] = {"users": [{"user": "alice", "mechanisms": mechanisms}], "next": None}
    assert kreplica("user", "list").stdout.splitlines()[1].split() == ["alice", "SCRAM-SHA-512", "8192"]


def test_new_user(admin, kreplica, secret):
    """The password is read from a file or from standard input, and is not printed."""
    admin.answers["GET /v1/users"] = CLUSTER
    admin.answers["PUT /v1/users/a%2Fb"] = {"user": "a/b", "mechanisms": [], "dry_run": False, "znodes": []}
    for words, answer in ((["--new-password-file", secret], ""), (["--new-password-file", "-"], f"{SECRET}\n")):
        done = kreplica("user", "create", "a/b", *words, answer=answer)
        assert done.stdout == "User a/b was created (SCRAM-SHA-512).\n"
        assert admin.last.body == {"password": SECRET, "mechanism": "SCRAM-SHA-512"}
    done = kreplica("user", "create", "a/b")
    assert (done.exit_code, "--new-password-file is required" in done.stderr) == (2, True)


def test_changed_password(admin, kreplica, secret):
    """`create` fails for an existing user, and `password` for a missing one."""
    admin.answers["GET /v1/users"] = {"users": [{"user": "alice", "mechanisms": []}], "next": None}
    admin.answers["PUT /v1/users/alice"] = {"user": "alice", "mechanisms": [], "dry_run": False, "znodes": []}
    words = ["--new-password-file", secret, "--mechanism", "SCRAM-SHA-256", "--iterations", "4096"]
    assert kreplica("user", "password", "alice", *words).stdout == "User alice has a new password (SCRAM-SHA-256).\n"
    assert admin.last.body == {"password": SECRET, "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    assert "already exists" in kreplica("user", "create", "alice", *words).stderr
    assert "does not exist" in kreplica("user", "password", "bob", *words).stderr


def test_deleted_user(admin, kreplica):
    admin.answers["DELETE /v1/users/alice"] = {"user": "alice", "mechanisms": [], "dry_run": False, "znodes": []}
    assert kreplica("user", "delete", "alice", "--yes").stdout == "The credentials of user alice were deleted.\n"
    assert admin.last.query == {"dry_run": "false"}


# --- explanations ----------------------------------------------------------------------------------------------------


def test_why_access(admin, kreplica):
    """The output shows the decision, its reason, and the ACL responsible for it."""
    question = {"principal": "User:alice", "host": "*", "operation": "read"}
    document = {**question, "resource_type": "topic", "resource_name": "orders", "allowed": True}
    other = {**ROW, "operation": "write"}
    document |= {"reason": "allowed_by_acl", "summary": "It is so.", "acl": ROW, "applying": [ROW, other]}
    admin.answers["GET /v1/why/access"] = document
    done = kreplica("why", "access", "User:alice", "Read", "orders")
    assert admin.last.query == {
        "principal": "User:alice", "operation": "read", "resource_type": "topic", "resource_name": "orders",
    }  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == "It is so."
    assert [line.split()[0] for line in lines[3:]] == ["*", "allow"]
    assert json.loads(kreplica("why", "access", "User:alice", "Read", "orders", "--json").stdout) == document
