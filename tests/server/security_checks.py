"""Checks of the APIs for ACLs, credentials, quotas and features, in every version, on a broker without any of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kreplica.cluster import documents, znodes
from kreplica.wire import messages
from kreplica.wire.messages import Api
from tests.support.broker_scene import Scene

Row = dict[str, Any]
Check = Callable[[Scene, int], Awaitable[None]]

SECURITY_DISABLED, ILLEGAL_SASL_STATE = 54, 34
TOKENS_NOT_ALLOWED, NO_RESOURCE, DUPLICATE, INVALID_REQUEST = 64, 91, 92, 42
BROKER_NOT_REGISTERED, STALE_BROKER_EPOCH = 102, 77

ACL = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
ACL |= {"operation": 3, "permission_type": 3}
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
ACL_FILTER |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}


def _answers(api: Api, body: Row, code: int) -> Check:
    """Return a check for an API whose response is a single error code."""

    async def check(scene: Scene, version: int) -> None:
        assert (await scene.ask(api, body, version))["error_code"] == code

    return check


def _rows(api: Api, body: Row, answered: str, *codes: int) -> Check:
    """Return a check for an API whose response has one row per resource."""

    async def check(scene: Scene, version: int) -> None:
        answer = await scene.ask(api, body, version)
        assert [row["error_code"] for row in answer[answered]] == list(codes)
        assert all(row["error_message"] for row in answer[answered])

    return check


async def _describe_quotas(scene: Scene, version: int) -> None:
    body = {"components": [{"entity_type": "user", "match_type": 2, "match": None}], "strict": False}
    answer = await scene.ask(messages.DESCRIBE_CLIENT_QUOTAS, body, version)
    assert (answer["error_code"], list(answer["entries"])) == (0, [])


async def _alter_quotas(scene: Scene, version: int) -> None:
    body = {"entries": QUOTA_ENTRIES, "validate_only": True}
    answer = await scene.ask(messages.ALTER_CLIENT_QUOTAS, body, version)
    assert [row["error_code"] for row in answer["entries"]] == [0, 0, INVALID_REQUEST, INVALID_REQUEST]
    await _describe_quotas(scene, version)


async def _describe_scram(scene: Scene, version: int) -> None:
    for users, codes in ((None, []), ([], []), (["a", "b", "b"], [("a", NO_RESOURCE), ("b", DUPLICATE)])):
        body = {"users": None if users is None else [{"name": name} for name in users]}
        answer = await scene.ask(messages.DESCRIBE_USER_SCRAM_CREDENTIALS, body, version)
        assert answer["error_code"] == 0
        assert [(row["user"], row["error_code"]) for row in answer["results"]] == codes


async def _allocate_producer_ids(scene: Scene, version: int) -> None:
    _, registered = await scene.zookeeper.get_data(znodes.broker_path(1))
    own = {"broker_id": 1, "broker_epoch": registered.czxid}
    blocks = [await scene.ask(messages.ALLOCATE_PRODUCER_IDS, own, version) for _ in range(2)]
    assert [block["error_code"] for block in blocks] == [0, 0]
    assert blocks[1]["producer_id_start"] == blocks[0]["producer_id_start"] + blocks[0]["producer_id_len"]
    data, _ = await scene.zookeeper.get_data(znodes.LATEST_PRODUCER_ID_BLOCK)
    following = documents.next_producer_id_block(1, data)
    assert following.first == blocks[1]["producer_id_start"] + blocks[1]["producer_id_len"]
    for body, code in (
        ({**own, "broker_epoch": registered.czxid - 1}, STALE_BROKER_EPOCH),
        ({**own, "broker_id": 99}, BROKER_NOT_REGISTERED),
    ):
        assert (await scene.ask(messages.ALLOCATE_PRODUCER_IDS, body, version))["error_code"] == code


SCRAM_CHANGES = {
    "deletions": [{"name": "a", "mechanism": 1}, {"name": "b", "mechanism": 1}],
    "upsertions": [{"name": "b", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}],
}
QUOTA_ENTRIES = [
    {
        "entity": [{"entity_type": entity_type, "entity_name": "192.0.2.1"}],
        "ops": [{"key": key, "value": 1.0, "remove": False}],
    }
    for entity_type, key in (
        ("user", "producer_byte_rate"),
        ("ip", "connection_creation_rate"),
        ("client-id", "no_such_rate"),
        ("group", "producer_byte_rate"),
    )
]
OWNER = {"principal_type": "User", "principal_name": "a"}

SECURITY_CHECKS: dict[Api, Check] = {
    messages.DESCRIBE_ACLS: _answers(messages.DESCRIBE_ACLS, ACL_FILTER, SECURITY_DISABLED),
    messages.CREATE_ACLS: _rows(
        messages.CREATE_ACLS, {"creations": [ACL, ACL]}, "results", SECURITY_DISABLED, SECURITY_DISABLED
    ),
    messages.DELETE_ACLS: _rows(messages.DELETE_ACLS, {"filters": [ACL_FILTER]}, "filter_results", SECURITY_DISABLED),
    messages.SASL_HANDSHAKE: _answers(messages.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, ILLEGAL_SASL_STATE),
    messages.SASL_AUTHENTICATE: _answers(messages.SASL_AUTHENTICATE, {"auth_bytes": b"x"}, ILLEGAL_SASL_STATE),
    messages.CREATE_DELEGATION_TOKEN: _answers(
        messages.CREATE_DELEGATION_TOKEN, {"renewers": [OWNER], "max_lifetime_ms": 1000}, TOKENS_NOT_ALLOWED
    ),
    messages.RENEW_DELEGATION_TOKEN: _answers(
        messages.RENEW_DELEGATION_TOKEN, {"hmac": b"h", "renew_period_ms": 1}, TOKENS_NOT_ALLOWED
    ),
    messages.EXPIRE_DELEGATION_TOKEN: _answers(
        messages.EXPIRE_DELEGATION_TOKEN, {"hmac": b"h", "expiry_time_period_ms": 1}, TOKENS_NOT_ALLOWED
    ),
    messages.DESCRIBE_DELEGATION_TOKEN: _answers(
        messages.DESCRIBE_DELEGATION_TOKEN, {"owners": [OWNER]}, TOKENS_NOT_ALLOWED
    ),
    messages.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram,
    messages.ALTER_USER_SCRAM_CREDENTIALS: _rows(
        messages.ALTER_USER_SCRAM_CREDENTIALS, SCRAM_CHANGES, "results", NO_RESOURCE, DUPLICATE
    ),
    messages.DESCRIBE_CLIENT_QUOTAS: _describe_quotas,
    messages.ALTER_CLIENT_QUOTAS: _alter_quotas,
    messages.UPDATE_FEATURES: _rows(
        messages.UPDATE_FEATURES,
        {"feature_updates": [{"feature": "transaction.version", "max_version_level": 1}]},
        "results",
        INVALID_REQUEST,
    ),
    messages.ALLOCATE_PRODUCER_IDS: _allocate_producer_ids,
}
