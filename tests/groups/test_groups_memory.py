"""Memory limits of groups: memory is charged to member, group, client address and broker, and released."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest
from classic_scene import GROUP, ClassicScene, join_request, protocols
from consumer_scene import ConsumerScene
from twisted.internet.defer import Deferred

from kreplica.client.errors import ConnectionLost
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.requests import JoinResponse, Leave, Sync, SyncResponse
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer_coordinator import HeartbeatResponse
from kreplica.groups.memory_limits import GroupAccount, GroupBounds, GroupMemory
from kreplica.testing.clients.coordinator_client import CoordinatorClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.wire import messages

KIB, MIB = 1024, 2**20
BOUNDS = GroupBounds(
    member_bytes_max=64 * KIB, group_bytes_max=200 * KIB, address_bytes_max=400 * KIB, bytes_max=700 * KIB
)


def join(scene: ClassicScene, group_id: str, size: int, host: str = "/10.0.0.1", **changes: Any) -> list[JoinResponse]:
    """Join a new member with ``size`` bytes of metadata; return a list to which its responses are appended."""
    answers: list[JoinResponse] = []
    fields = {"client_host": host, "protocols": (("range", bytes(size)),), **changes}
    scene.coordinator.join(group_id, join_request(**fields), answers.append)
    return answers


@pytest.fixture
def classic() -> ClassicScene:
    return ClassicScene(memory=BOUNDS)


@pytest.mark.parametrize(
    ("size", "code"), [(60 * KIB, []), (64 * KIB, [ErrorCode.MESSAGE_TOO_LARGE])], ids=["fits", "too large"]
)
def test_member_is_bounded(classic: ClassicScene, size: int, code: list[ErrorCode]) -> None:
    """Metadata above the limit is rejected with an error that clients do not retry."""
    assert [each.error for each in join(classic, GROUP, size)] == code
    assert classic.memory.rejected == len(code)


def test_group_is_bounded_and_others_are_not_affected(classic: ClassicScene) -> None:
    """A full group refuses members; another group accepts them, even from the same address."""
    for _ in range(3):
        assert join(classic, GROUP, 60 * KIB) == []
    assert [each.error for each in join(classic, GROUP, 60 * KIB)] == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert join(classic, "another", 60 * KIB) == []


def test_address_is_bounded_and_others_are_not_affected(classic: ClassicScene) -> None:
    """One client cannot exhaust the broker's memory with many groups."""
    codes = [join(classic, f"group {number}", 60 * KIB) for number in range(10)]
    rejected = [answers[0].error for answers in codes if answers]
    assert len(codes) - len(rejected) == 6
    assert set(rejected) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert join(classic, "other", 60 * KIB, "/10.0.0.2") == []


def test_broker_is_bounded(classic: ClassicScene) -> None:
    """The broker's limit applies to all groups together, from any number of addresses."""
    for number in range(20):
        join(classic, f"group {number}", 60 * KIB, f"/10.0.0.{number}")
    assert BOUNDS.bytes_max - 64 * KIB < classic.memory.held_bytes <= BOUNDS.bytes_max


def test_rejoining_member_is_not_refused(classic: ClassicScene) -> None:
    """At the limit, members that do not grow can rejoin; growing ones are rejected."""
    answers = [join(classic, GROUP, 60 * KIB) for _ in range(3)]
    classic.advance(10)
    joined = [each[0] for each in answers]
    assert {each.error for each in joined} == {ErrorCode.NONE}
    again = [join(classic, GROUP, 60 * KIB, member_id=each.member_id) for each in joined]
    assert {each[0].error for each in again} == {ErrorCode.NONE}
    larger = join(classic, GROUP, 63 * KIB + 900, member_id=joined[0].member_id)
    assert [each.error for each in larger] == [ErrorCode.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize("how", ["leave", "session", "unload"])
def test_memory_of_members_is_released(classic: ClassicScene, how: str) -> None:
    """When members leave, their sessions expire or the group is unloaded, the memory is released."""
    answers = [join(classic, GROUP, 60 * KIB) for _ in range(3)]
    join(classic, GROUP, 10, requires_known_member=True)
    classic.advance(10)
    synced: list[SyncResponse] = []
    joined = answers[0][0]
    assignments = [(each[0].member_id, bytes(1000)) for each in answers]
    for each in answers:
        sync = Sync(joined.generation, each[0].member_id, assignments=assignments)
        classic.coordinator.sync(GROUP, sync, synced.append)
    classic.log.commit()
    assert [len(each.assignment) for each in synced] == [1000] * 3
    assert classic.memory.held_bytes > 3 * 61 * KIB
    if how == "leave":
        classic.coordinator.leave(GROUP, [Leave(each[0].member_id) for each in answers])
    elif how == "session":
        classic.advance(30)
    else:
        classic.unload()
    classic.advance(30)
    assert classic.memory.held_bytes < 3 * KIB
    if how == "unload":
        assert classic.memory.held_bytes == 0


def test_metadata_is_freed_without_garbage_collection(classic: ClassicScene) -> None:
    """The reference cycle of a member and its session timer does not keep the metadata alive."""
    metadata = bytes(bytearray(50_000))
    references = sys.getrefcount(metadata)
    gc.disable()
    try:
        joined: list[JoinResponse] = []
        request = join_request(protocols=(("range", metadata),))
        classic.coordinator.join(GROUP, request, joined.append)
        del request
        classic.advance(10)
        assert sys.getrefcount(metadata) > references
        classic.coordinator.leave(GROUP, [Leave(joined[0].member_id)])
        classic.advance(1)
        joined.clear()
        assert sys.getrefcount(metadata) == references
    finally:
        gc.enable()


def test_loaded_members_are_charged_but_not_refused(classic: ClassicScene) -> None:
    """Loaded members may exceed the limits."""
    answers = join(classic, GROUP, 60 * KIB)
    classic.advance(10)
    classic.coordinator.sync(GROUP, Sync(1, answers[0].member_id), lambda synced: None)
    classic.log.commit()
    held = classic.memory.held_bytes
    classic.memory = GroupMemory(GroupBounds(bytes_max=1024))
    classic.fail_over()
    assert classic.group.state_name == "Stable"
    assert classic.memory.held_bytes == pytest.approx(held, rel=0.01)


def test_unused_member_ids_are_charged(classic: ClassicScene) -> None:
    """Unused member IDs are charged to their client address."""
    codes = [join(classic, f"g{number % 3}", 10, requires_known_member=True)[0].error for number in range(1000)]
    assert codes[0] is ErrorCode.MEMBER_ID_REQUIRED
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert classic.memory.held_bytes <= BOUNDS.address_bytes_max
    classic.advance(10)
    assert classic.memory.held_bytes == 0


def test_large_subscriptions_are_not_decoded() -> None:
    """If a subscription is too large to be decoded, all topics are treated as subscribed."""
    scene = ClassicScene(memory=GroupBounds(member_bytes_max=8 * MIB))
    names = [f"topic-{number:07}" for number in range(150_000)]
    answers: list[JoinResponse] = []
    small = join_request(protocols=protocols("range"), client_host="/a")
    large = join_request(protocols=protocols("range", topics=names), client_host="/b")
    for each in (small, large):
        scene.coordinator.join(GROUP, each, answers.append)
    scene.advance(10)
    assert [each.error for each in answers] == [ErrorCode.NONE] * 2
    assert scene.group.is_subscribed_to("a topic in no subscription")


# --- groups of KIP-848 -----------------------------------------------------------------------------------------------


@pytest.fixture
def consumer() -> ConsumerScene:
    return ConsumerScene(memory=BOUNDS)


def send_heartbeat(scene: ConsumerScene, heartbeat: Heartbeat) -> list[HeartbeatResponse | ErrorCode]:
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(heartbeat, responses.append)
    scene.log.commit()
    return responses


def heartbeat(group_id: str, member_id: str, names: int, host: str = "/10.0.0.1", **fields: Any) -> Heartbeat:
    topics = tuple(f"topic-{number:06}" for number in range(names))
    all_fields = {"topic_names": topics, "rebalance_timeout_ms": 1000, "owned": {}, **fields}
    return Heartbeat(group_id, member_id, 0, client_host=host, **all_fields)


def test_subscribed_names_are_charged_and_released(consumer: ConsumerScene) -> None:
    assert send_heartbeat(consumer, heartbeat("g", "large", 1000)) == [ErrorCode.MESSAGE_TOO_LARGE]
    assert isinstance(send_heartbeat(consumer, heartbeat("g", "a", 700))[0], HeartbeatResponse)
    assert isinstance(send_heartbeat(consumer, heartbeat("g", "b", 700))[0], HeartbeatResponse)
    assert isinstance(send_heartbeat(consumer, heartbeat("g", "c", 700))[0], HeartbeatResponse)
    assert send_heartbeat(consumer, heartbeat("g", "d", 700)) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    held = consumer.memory.held_bytes
    assert held > 3 * 700 * 76
    for member_id in "abc":
        send_heartbeat(consumer, Heartbeat("g", member_id, -1))
    assert consumer.memory.held_bytes < 3 * KIB


def test_matches_of_expressions_are_charged(consumer: ConsumerScene) -> None:
    consumer.cluster.set_partition_count("t", 1)
    consumer.cluster.set_partition_count("u", 1)
    consumer.advance(1)
    fields = {"topic_names": None, "regular_expression": "t|u"}
    assert isinstance(send_heartbeat(consumer, heartbeat("g", "a", 0, **fields))[0], HeartbeatResponse)
    with_pattern = consumer.memory.held_bytes
    send_heartbeat(consumer, Heartbeat("g", "a", -1))
    assert consumer.memory.held_bytes < with_pattern - 2048
    consumer.unload()
    assert consumer.memory.held_bytes == 0


# --- accounting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_totals_are_the_sums_of_the_charges(seed: int) -> None:
    """After any sequence of operations, totals are the sums of the charges."""
    rng = random.Random(seed)
    memory = GroupMemory(GroupBounds(1000, 3000, 5000, 8000))
    accounts = [GroupAccount(memory, f"g{number}") for number in range(4)]
    expected: dict[tuple[int, str], tuple[str, int]] = {}
    for _ in range(500):
        group, key, address = rng.randrange(4), rng.choice("abc"), rng.choice("xyz")
        account = accounts[group]
        action = rng.random()
        if action < 0.6:
            size = rng.randrange(1, 1500)
            try:
                account.check(key, address, size)
            except KafkaError:
                continue
            account.set(key, address, size)
            expected[group, key] = (address, size)
        elif action < 0.9:
            account.remove(key)
            expected.pop((group, key), None)
        else:
            account.close()
            expected = {owner: charge for owner, charge in expected.items() if owner[0] != group}
        assert memory.held_bytes == sum(size for _, size in expected.values()) <= 8000
        for each in "xyz":
            assert memory.held_by(each) == sum(size for address, size in expected.values() if address == each)


# --- through a broker ------------------------------------------------------------------------------------------------


class Wire:
    """A broker with limits of 1 MiB per member and 8 MiB per address, and clients on two hosts."""

    def __init__(self) -> None:
        overrides = [
            f"kreplica.group.member.bytes.max={MIB}",
            f"kreplica.group.address.bytes.max={8 * MIB}",
            "group.initial.rebalance.delay.ms=3000",
        ]
        self.cluster = SimulatedCluster(1, overrides=overrides)
        self.cluster.start()
        self.cluster.run_until(self.client("first", "first").request_with_retries(messages.LIST_GROUPS, {}))

    def client(self, host: str, group_id: str) -> CoordinatorClient:
        reactor = self.cluster.host(host).reactor
        return CoordinatorClient(reactor, [("broker-1", BROKER_PORT)], group_id, 0, client_id=host)

    def join(self, client: CoordinatorClient, group_id: str, size: int, version: int = 3) -> Deferred[Any]:
        body = {
            "group_id": group_id,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(size)}],
        }
        return Deferred.fromCoroutine(client.request(messages.JOIN_GROUP, body, at_most=version))

    @property
    def held_bytes(self) -> int:
        return self.cluster.brokers[1].program.coordinators.group_memory.held_bytes


def test_client_at_its_limit_does_not_affect_others() -> None:
    """One host reaches its limit with twenty groups, and another host can still join.

    When the connections of waiting members close, their memory is released before their sessions expire.
    """
    wire = Wire()
    before = wire.held_bytes
    attackers = [wire.client("attacker", f"attack-{number}") for number in range(20)]
    answers = [wire.join(each, f"attack-{number}", MIB - 4096) for number, each in enumerate(attackers)]
    codes: list[int] = []
    for each in answers:
        each.addCallbacks(lambda body: codes.append(body["error_code"]), lambda failure: failure.trap(ConnectionLost))
    wire.cluster.run(1)
    assert set(codes) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert 6 * MIB < wire.held_bytes - before < 8 * MIB
    other = wire.client("other", "honest")
    admitted = wire.cluster.run_until(wire.join(other, "honest", 500, version=4))
    assert admitted["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    for each in attackers:
        wire.cluster.run_until(each.close())
    wire.cluster.run(1)
    assert wire.held_bytes - before < 32 * KIB, "seven groups without members are left"
