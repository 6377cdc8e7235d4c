"""Quotas, throttled clients, and explanations of throttling, on all brokers of a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest
from why_scenes import Scene

from kreplica.admin.http.problems import Problem
from kreplica.admin.why.clients import explain_client
from kreplica.cluster.quotas import CONNECTION_CREATION_RATE, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.errors import KafkaError
from kreplica.server.quotas.throttled_clients import THROTTLED_MAX, ThrottledClients, ThrottledKey

PATH = "/v1/quotas"
PARTS = {"user": None, "client_id": None, "ip": None}


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def change(scene: Scene, quotas: dict[str, Any], *, dry_run: bool = False, **entity: str) -> Any:
    return scene.apis[1].document("PATCH", PATH, {**entity, "quotas": quotas}, dry_run=dry_run)


def quotas_of(scene: Scene, broker: int) -> list[Any]:
    rows: list[Any] = scene.apis[broker].document("GET", PATH)["quotas"]
    return rows


def test_quotas_are_set_listed_and_removed(scene: Scene) -> None:
    """Quotas take effect on all brokers; a dry run only returns the znodes."""
    tried = change(scene, {PRODUCER_BYTE_RATE: 1000}, dry_run=True, user="alice")
    assert [each["path"] for each in tried["znodes"]] == [
        "/config/users/alice",
        "/config/changes/config_change_",
    ]
    assert tried["quotas"] == {PRODUCER_BYTE_RATE: 1000}
    assert quotas_of(scene, 1) == []
    change(scene, {PRODUCER_BYTE_RATE: 1000}, user="alice")
    change(scene, {CONSUMER_BYTE_RATE: 5000, PRODUCER_BYTE_RATE: None}, user="alice", client_id=DEFAULT_ENTITY)
    done = change(scene, {CONNECTION_CREATION_RATE: 0}, ip="192.0.2.1")
    assert (done["ip"], done["quotas"], done["dry_run"]) == ("192.0.2.1", {CONNECTION_CREATION_RATE: 0}, False)
    rows = [
        {**PARTS, "ip": "192.0.2.1", "quotas": {CONNECTION_CREATION_RATE: 0.0}},
        {**PARTS, "user": "alice", "quotas": {PRODUCER_BYTE_RATE: 1000.0}},
        {**PARTS, "user": "alice", "client_id": DEFAULT_ENTITY, "quotas": {CONSUMER_BYTE_RATE: 5000.0}},
    ]
    scene.cluster.run(2)
    for broker in (1, 2, 3):
        assert quotas_of(scene, broker) == rows
    first = scene.apis[2].document("GET", PATH, limit=1)
    assert (first["quotas"], len(scene.apis[2].document("GET", PATH, after=first["next"])["quotas"])) == (rows[:1], 2)
    change(scene, {CONNECTION_CREATION_RATE: None}, ip="192.0.2.1")
    change(scene, {CONSUMER_BYTE_RATE: None}, user="alice", client_id=DEFAULT_ENTITY)
    change(scene, {PRODUCER_BYTE_RATE: None}, user="alice")
    assert quotas_of(scene, 1) == []


@pytest.mark.parametrize(
    ("entity", "quotas", "detail"),
    [
        ({}, {PRODUCER_BYTE_RATE: 1}, "names no entity"),
        ({"user": "a", "ip": "192.0.2.1"}, {PRODUCER_BYTE_RATE: 1}, "cannot be combined"),
        ({"user": "a"}, {CONNECTION_CREATION_RATE: 1}, "connection_creation_rate is not a quota of users"),
        ({"ip": "192.0.2.1"}, {PRODUCER_BYTE_RATE: 1}, "producer_byte_rate is not a quota of an IP address"),
        ({"user": "a"}, {PRODUCER_BYTE_RATE: 0}, "must be greater than 0"),
        ({"user": "a"}, {PRODUCER_BYTE_RATE: 1.5}, "must be a whole number"),
        ({"ip": "192.0.2.1"}, {CONNECTION_CREATION_RATE: 2**31}, "from 0 to 2147483647"),
    ],
)
def test_invalid_changes(scene: Scene, entity: dict[str, str], quotas: dict[str, float], detail: str) -> None:
    with pytest.raises(Problem) as caught:
        change(scene, quotas, **entity)
    assert (caught.value.status, detail in caught.value.detail) == (400, True)


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "\0", "x" * 1000])
def test_any_name_can_have_a_quota(scene: Scene, name: str) -> None:
    """A quota can be set and read for any name; names that cannot be part of a path are encoded."""
    for entity in ({"user": name}, {"client_id": name}, {"user": "u", "client_id": name}):
        change(scene, {PRODUCER_BYTE_RATE: 5}, **entity)
        scene.cluster.run(1)
        assert quotas_of(scene, 2) == [{**PARTS, **entity, "quotas": {PRODUCER_BYTE_RATE: 5.0}}]
        change(scene, {PRODUCER_BYTE_RATE: None}, **entity)


def test_unknown_host(scene: Scene) -> None:
    """The error for an unknown host has its name."""
    with pytest.raises(KafkaError, match=r"no\.such\.host is not a valid IP"):
        change(scene, {CONNECTION_CREATION_RATE: 1}, ip="no.such.host")


def test_why_a_client_is_throttled() -> None:
    """The explanation has the quota, the brokers and a way to raise it; an hour after the end it is forgotten."""
    scene = Scene()
    change(scene, {PRODUCER_BYTE_RATE: 1000}, user="alice")
    scene.cluster.run(2)
    for broker in (2, 3):
        quotas = scene.cluster.brokers[broker].program.quotas
        key = ThrottledKey(PRODUCER_BYTE_RATE, "User:alice", "app", "192.0.2.1")
        quotas.throttled.add(key, 1.5)
        quotas.throttled.add(key, 2.5)
        assert quotas.throttled.count_now(PRODUCER_BYTE_RATE) == 1
    rows = scene.apis[1].document("GET", "/v1/throttled-clients")["clients"]
    assert [(row["broker_id"], row["count"], row["throttled_ms"]) for row in rows] == [(2, 2, 4000), (3, 2, 4000)]
    assert all(row["until_ms"] == row["last_at_ms"] + 2500 for row in rows)

    def why(**query: str) -> Any:
        return scene.apis[1].document("GET", "/v1/why/client", **query)

    found = why(principal="User:alice", client_id="app")
    assert found["state"] == "throttled"
    assert found["summary"].startswith("User:alice with the client ID app is throttled, most recently at 2023-")
    assert found["summary"].endswith(
        "Brokers 2 and 3 delayed 4 requests, for 8.0 s in total, because of producer_byte_rate (1,000 bytes per second "
        "on each broker, the quota of user alice)."
    )
    raise_it = found["you_can"][0]["request"]
    assert raise_it == {
        "method": "PATCH",
        "path": PATH,
        "body": {"user": "alice", "quotas": {PRODUCER_BYTE_RATE: 2000}},
    }
    scene.apis[1].document(raise_it["method"], raise_it["path"], raise_it["body"])
    assert why(principal="User:alice", client_id="other")["state"] == "not_throttled"
    assert why(principal="User:bob")["summary"] == ("User:bob was not throttled in the last hour. No quota applies.")
    scene.cluster.brokers[3].kill()
    scene.cluster.run(90)
    found = why(principal="User:alice")
    assert (found["state"], len(found["problems"])) == ("was_throttled", 1)
    assert "Broker 2 delayed 2 requests" in found["summary"]
    scene.cluster.run(3600)
    assert why(principal="User:alice")["state"] == "not_throttled"
    assert not list(scene.cluster.brokers[2].program.quotas.throttled)


def test_why_connections_are_not_served() -> None:
    """If connections from an address are throttled, the explanation shows the quota of the address."""
    scene = Scene()
    change(scene, {CONNECTION_CREATION_RATE: 5}, ip="192.0.2.1")
    change(scene, {CONNECTION_CREATION_RATE: 20}, ip=DEFAULT_ENTITY)
    scene.cluster.run(2)
    limits = scene.cluster.brokers[2].program.connection_limits.limits
    for _ in range(53):
        limits.admit("PLAINTEXT", "192.0.2.1")
    found = scene.apis[1].document("GET", "/v1/why/client", address="192.0.2.1")
    assert (found["state"], found["facts"]["throttled"][0]["user"]) == ("throttled", None)
    assert "Broker 2 delayed 3 connections" in found["summary"]
    assert "5 connections per second on each broker, the quota of ip 192.0.2.1" in found["summary"]
    other = scene.apis[1].document("GET", "/v1/why/client", address="192.0.2.2")
    assert (other["state"], other["facts"]["quotas"][0]["limit"]) == ("not_throttled", 20)


def test_quota_that_is_no_longer_set() -> None:
    """If the quota has been removed, the explanation says so instead of showing a limit."""
    from kreplica.admin.why.clients import ThrottledFacts

    row = ThrottledFacts(1, PRODUCER_BYTE_RATE, "User:a", "app", "192.0.2.1", 1, 10, 1000, None)
    found = explain_client("User:a", None, None, [], [row], 2000, [])
    assert "(a quota that is no longer set)" in found.summary
    assert all(each.request is None for each in found.you_can)


def test_throttled_clients_are_bounded() -> None:
    """Only a limited number of throttled clients is remembered; those throttled least recently are forgotten."""
    clients = ThrottledClients(lambda: 1.0)
    for number in range(THROTTLED_MAX + 10):
        clients.add(ThrottledKey(PRODUCER_BYTE_RATE, "User:a", f"c{number}", "192.0.2.1"), 0.1)
        clients.add(ThrottledKey(PRODUCER_BYTE_RATE, "User:a", "first", "192.0.2.1"), 0.1)
    assert len(clients) == THROTTLED_MAX
    assert next(iter(clients)).key.client_id == "first"
