"""Members of KIP-848 groups, and protocol selection."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from group_readers import ALL, KINDS, OVERRIDES, Owners, Reader, delay, new_brokers, settle, start_readers

from kreplica.client.group import GroupOptions
from kreplica.client.group.member_state import JOINING, MemberState
from kreplica.client_core.errors import BrokerRefused
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster

CONSUMER, EAGER = KINDS["consumer"], KINDS["eager"]
AUTO = {"protocol": "auto"}


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers, and the topic t with six partitions."""
    simulated_cluster = new_brokers()
    yield simulated_cluster
    assert simulated_cluster.simulation.failures == []
    simulated_cluster.stop()


def test_members_revoke_only_moving_partitions(brokers: SimulatedCluster) -> None:
    """Members keep the partitions that do not move, without interruption, while another member joins."""
    one, two = start_readers(brokers, "one", "two", **CONSUMER)
    one.calls.clear()
    two.calls.clear()
    three = Reader(brokers, "three", owners=one.owners, **CONSUMER)
    brokers.run_until(three.start())
    settle(brokers, one, two, three)
    revoked = [numbers for reader in (one, two) for method, numbers in reader.calls if method == "revoked"]
    assert [len(numbers) for numbers in revoked] == [1, 1]
    for reader in (three, two, one):
        reader.stop()


def test_members_choose_the_assignor(brokers: SimulatedCluster) -> None:
    one, two = start_readers(brokers, "one", "two", **CONSUMER, remote_assignor="range")
    assert sorted([one.partition_numbers, two.partition_numbers]) == [[0, 1, 2], [3, 4, 5]]
    lost = Reader(brokers, "lost", **CONSUMER, remote_assignor="none")
    with pytest.raises(BrokerRefused, match="UNSUPPORTED_ASSIGNOR"):
        brokers.run_until(lost.start())
    for reader in (lost, two, one):
        reader.stop()


def test_commits_while_epochs_change(brokers: SimulatedCluster) -> None:
    """A commit with the previous epoch is retried with the epoch of the next response."""
    (one,) = start_readers(brokers, "one", **CONSUMER, rebalance_timeout_s=60.0)
    one.revocation_hook = delay(one, 2.0)
    two = Reader(brokers, "two", owners=one.owners, **CONSUMER, rebalance_timeout_s=60.0)
    two.start()
    offset = 0
    while len(two.owned) < 3:
        offset += 1
        kept = sorted(one.owned)[:3]
        brokers.run_until(one.membership.commit({each: CommittedOffset(offset) for each in kept}))
        brokers.run(0.01)
    assert brokers.run_until(one.membership.committed(kept)) == {each: CommittedOffset(offset) for each in kept}
    one.revocation_hook = None
    two.stop()
    one.stop()


def test_static_member_keeps_its_assignment(brokers: SimulatedCluster) -> None:
    """A static member that returns within its session timeout gets its partitions back without a rebalance."""
    one, two = [Reader(brokers, name, owners=Owners(), **CONSUMER, instance_id=name) for name in ("one", "two")]
    for reader in (one, two):
        brokers.run_until(reader.start())
    brokers.run_until(lambda: len(one.owned) == len(two.owned) == 3)
    calls, numbers = list(two.calls), one.partition_numbers
    one.stop()
    brokers.run(3.0)
    again = Reader(brokers, "one", owners=Owners(), **CONSUMER, instance_id="one")
    brokers.run_until(again.start())
    brokers.run(15.0)
    assert (again.partition_numbers, two.calls) == (numbers, calls)
    again.stop()
    brokers.run_until(lambda: two.partition_numbers == ALL)
    two.stop()


def test_replacement_waits_for_a_dead_static_member(brokers: SimulatedCluster) -> None:
    """The replacement joins after the dead member's session has expired."""
    one = Reader(brokers, "one", **CONSUMER, instance_id="same")
    brokers.run_until(one.start())
    one.die()
    two = Reader(brokers, "two", **CONSUMER, instance_id="same")
    brokers.run_until(two.start())
    assert two.partition_numbers == ALL
    two.stop()


def test_fenced_member_joins_again(brokers: SimulatedCluster) -> None:
    """A member that was suspended beyond its session timeout loses its partitions and joins again."""
    (one,) = start_readers(brokers, "one", **CONSUMER)
    epoch = one.membership.identity.generation
    one.host.pause()
    brokers.run(20.0)
    one.host.resume()
    brokers.run_until(lambda: one.calls[-2:] == [("lost", ALL), ("assigned", ALL)])
    assert one.membership.identity.generation > epoch
    one.stop()


@pytest.mark.parametrize("after_s", [0.1, 0.4])
def test_response_older_than_a_session_is_ignored(brokers: SimulatedCluster, after_s: float) -> None:
    """A process is suspended while a response is in flight, and resumes after its session has expired."""
    owners = Owners()
    one, two = (Reader(brokers, name, owners=owners, **CONSUMER) for name in ("one", "two"))
    brokers.run_until(one.start())
    brokers.run_until(two.start())
    brokers.run_until(lambda: len(one.partition_numbers) == len(two.partition_numbers) == 3)
    for number in (1, 2, 3):
        brokers.simulation.network.slow(f"broker-{number}", "one", (0.4, 0.4))
    brokers.run(3.0)
    two.stop()
    brokers.run(after_s)  # the response is in flight
    one.host.pause()
    owners.release("one", one.owned)
    brokers.run(30.0)
    three = Reader(brokers, "three", owners=owners, **CONSUMER)
    brokers.run_until(three.start())
    brokers.run_until(lambda: three.partition_numbers == ALL)
    one.host.resume()
    brokers.run_until(
        lambda: (
            sorted(one.partition_numbers + three.partition_numbers) == ALL and 0 < len(one.partition_numbers) < len(ALL)
        )
    )
    assert owners.contradictions == []
    one.stop()
    three.stop()


# --- protocol selection ---


def test_auto_prefers_the_consumer_protocol(brokers: SimulatedCluster) -> None:
    """Members with ``auto`` share a group with members of the consumer protocol."""
    one, two = start_readers(brokers, "one", "two", **AUTO)
    three = Reader(brokers, "three", owners=one.owners, **CONSUMER)
    brokers.run_until(three.start())
    settle(brokers, one, two, three)
    offsets = {each: CommittedOffset(3) for each in one.owned}
    brokers.run_until(one.membership.commit(offsets))
    assert brokers.run_until(two.membership.committed(one.owned)) == offsets
    one.membership.subscribe(["t", "u"])
    for reader in (one, two, three):
        reader.stop()


def test_auto_joins_a_classic_group(brokers: SimulatedCluster) -> None:
    """Members with ``auto`` join a classic group; members with ``consumer`` are refused."""
    (one,) = start_readers(brokers, "one", **EAGER)
    two = Reader(brokers, "two", owners=one.owners, **AUTO)
    brokers.run_until(two.start())
    settle(brokers, one, two)
    three = Reader(brokers, "three", **CONSUMER)
    with pytest.raises(BrokerRefused, match="GROUP_ID_NOT_FOUND"):
        brokers.run_until(three.start())
    for reader in (one, two, three):
        reader.stop()


def test_auto_follows_a_conversion(brokers: SimulatedCluster) -> None:
    """A member with ``auto`` rejoins a group that became classic while the member was isolated."""
    (one,) = start_readers(brokers, "one", **AUTO)
    brokers.simulation.network.isolate("one")
    brokers.run(20.0)
    two = Reader(brokers, "two", owners=one.owners, **EAGER)
    brokers.run_until(two.start())
    brokers.simulation.network.heal()
    settle(brokers, one, two)
    assert one.membership.error is None
    brokers.run_until(one.membership.commit({each: CommittedOffset(3) for each in one.owned}))
    one.stop()
    two.stop()


def test_auto_with_an_old_broker() -> None:
    """Members with ``auto`` use the classic protocol if the broker does not support KIP-848."""
    brokers = new_brokers(overrides=[*OVERRIDES, "group.coordinator.rebalance.protocols=classic"])
    one, two = start_readers(brokers, "one", "two", **AUTO)
    lost = Reader(brokers, "lost", **CONSUMER)
    with pytest.raises(BrokerRefused, match="UNSUPPORTED_VERSION"):
        brokers.run_until(lost.start())
    for reader in (one, two, lost):
        reader.stop()
    brokers.stop()


# --- heartbeats ---

T, U = UUID(int=1), UUID(int=2)
OPTIONS = GroupOptions(group_id="g", rack="A")


def response(epoch: int, *partitions: tuple[UUID, int], with_assignment: bool = True) -> dict[str, object]:
    rows = [{"topic_id": topic_id, "partitions": [number]} for topic_id, number in partitions]
    assignment = {"topic_partitions": rows} if with_assignment else None
    return {"member_id": "m", "member_epoch": epoch, "heartbeat_interval_ms": 2000, "assignment": assignment}


def test_heartbeats_contain_only_changes() -> None:
    """The first heartbeat and the first one after an error contain all fields, the others only changes."""
    state = MemberState(OPTIONS, "m", ["t"])
    request_body = state.request_body()
    assert request_body == {
        "group_id": "g", "member_id": "m", "member_epoch": JOINING, "instance_id": None, "rack_id": "A",
        "rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["t"], "server_assignor": None,
        "topic_partitions": [],
    }  # fmt: skip
    assert state.process_response(request_body, response(1, (T, 0)))
    assert (state.epoch, state.interval_s) == (1, 2.0)
    unchanged = state.request_body()
    assert unchanged == {"group_id": "g", "member_id": "m", "member_epoch": 1, "instance_id": None}
    assert not state.process_response(unchanged, response(1, with_assignment=False))
    assert not state.process_response(unchanged, response(1, (T, 0)))
    state.add_owned({TopicPartition("t", 0): T})
    state.topics = ["t", "u"]
    changed = state.request_body()
    assert changed["topic_partitions"] == [{"topic_id": T, "partitions": [0]}]
    assert changed["subscribed_topic_names"] == ["t", "u"]
    assert "rack_id" not in changed
    state.process_response(changed, response(2, with_assignment=False))
    state.reset_acknowledged()
    assert state.request_body().keys() == request_body.keys()
    state.reset()
    assert (state.epoch, state.target, state.owned) == (JOINING, None, {})


def test_recreated_topic() -> None:
    """A partition of the recreated topic replaces the old one; unknown topic IDs are skipped."""
    state = MemberState(OPTIONS, "m", ["t"])
    zero = TopicPartition("t", 0)
    state.process_response(state.request_body(), response(1, (T, 0)))
    assert state.target_by_name({}) == ({}, False)
    views = {"t": TopicView("t", (), T)}
    assert state.target_by_name(views) == ({zero: T}, True)
    state.add_owned({zero: T})
    state.process_response(state.request_body(), response(2, (U, 0)))
    wanted, is_complete = state.target_by_name({"t": TopicView("t", (), U)})
    assert (wanted, is_complete) == ({zero: U}, True)
    assert state.to_release(wanted) == {zero}
    state.remove_owned([zero])
    assert state.to_release(wanted) == frozenset()


def test_leave_heartbeats() -> None:
    """A static member leaves temporarily (epoch -2), a dynamic one permanently (epoch -1)."""
    assert MemberState(OPTIONS, "m", ()).leave_body()["member_epoch"] == -1
    static = GroupOptions(group_id="g", instance_id="i")
    assert MemberState(static, "m", ()).leave_body()["member_epoch"] == -2
