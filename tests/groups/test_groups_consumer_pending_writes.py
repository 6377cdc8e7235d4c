"""KIP-848 groups respond once their changes are committed, and committed changes survive a failover."""

from __future__ import annotations

import pytest
from consumer_scene import GROUP, ConsumerScene, Member, check_transcript

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.assignment import count
from kreplica.groups.consumer.assignors import Assignor
from kreplica.groups.consumer.persistence import ReplayedGroups, tombstones
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState, StateName
from kreplica.groups.consumer.target_assignment import with_target
from kreplica.groups.consumer.transitions import HeartbeatResponse
from kreplica.groups.consumer_records import RecordKind, parse_consumer_key


def test_responses_wait_for_the_log() -> None:
    """Members that join while a write is pending share the next write."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    responses: list[tuple[str, object]] = []
    for name in ("a", "b", "c"):
        member = Member(name)
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.join_heartbeat(), lambda answer, name=name: responses.append((name, answer)))  # type: ignore[misc]
    assert responses == []
    assert len(scene.log.waiting) == 1
    scene.log.commit()
    assert [(name, answer.member_epoch) for name, answer in responses if isinstance(answer, HeartbeatResponse)] == [
        ("a", 1), ("b", 3), ("c", 3),
    ]  # fmt: skip
    written = [parse_consumer_key(key) for key, _ in scene.log.records]
    assert [key.kind for key in written].count(RecordKind.GROUP_EPOCH) == 2
    scene.unload()


def test_hundreds_of_members_join_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One target is computed for 200 joining members, which have their partitions after two heartbeats."""
    targets: list[int] = []

    def count_target(state: GroupState, assignors: tuple[Assignor, ...]) -> GroupState:
        targets.append(len(state.members))
        return with_target(state, assignors)

    monkeypatch.setattr("kreplica.groups.consumer.group.with_target", count_target)
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 400)
    members = [Member(f"m{number:03}") for number in range(200)]

    def send(member: Member, heartbeat: Heartbeat) -> None:
        def on_response(answer: HeartbeatResponse | ErrorCode) -> None:
            assert isinstance(answer, HeartbeatResponse), answer
            member.apply(answer)

        scene.send(heartbeat, on_response)

    for member in members:
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 60_000}
        send(member, member.join_heartbeat())
    scene.log.commit()
    assert targets == [1, 200]
    for _ in range(2):
        for member in members:
            send(member, member.heartbeat())
        scene.log.commit()
    assert scene.state.name is StateName.STABLE
    assert {count(member.owned) for member in members} == {2}
    scene.unload()


def test_heartbeat_without_changes_writes_nothing() -> None:
    """A heartbeat without changes is answered immediately."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    member = Member("a")
    member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(member.join_heartbeat(), responses.append)
    scene.log.commit()
    assert isinstance(responses[0], HeartbeatResponse)
    member.apply(responses[0])
    scene.send(member.heartbeat(), responses.append)
    assert responses[1] == HeartbeatResponse("a", 1)
    assert not scene.log.waiting
    scene.unload()


def test_failed_write_is_retried() -> None:
    """After a failed write, requests are refused until the retry is committed."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> hold
> b joins t
> c joins t
> reject
  b: COORDINATOR_NOT_AVAILABLE
  c: COORDINATOR_NOT_AVAILABLE
> a beats
  a: COORDINATOR_NOT_AVAILABLE
> a leaves
  a: COORDINATOR_NOT_AVAILABLE
> show
  Stable 1, target of 1
  a: 1 STABLE, t0 t1 t2 t3; target t0 t1 t2 t3
> wait 1
> show
  Reconciling 2, target of 2
  a: 1 STABLE, t0 t1 t2 t3; target t0 t1
  b: 2 UNRELEASED_PARTITIONS, nothing; target t2 t3
> commit
> b joins
  b: 2, owns nothing
> c joins
  c: 3, owns nothing
""")


def test_write_during_a_zookeeper_outage_is_retried() -> None:
    """A group continues after a short ZooKeeper outage."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    member = Member("a")
    member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(member.join_heartbeat(), responses.append)
    scene.log.reject(ErrorCode.NOT_COORDINATOR)
    assert responses == [ErrorCode.NOT_COORDINATOR]
    scene.clock.advance(1)
    scene.log.commit()
    scene.send(member.join_heartbeat(), responses.append)
    scene.log.commit()
    assert isinstance(responses[1], HeartbeatResponse)
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_heartbeats_extend_sessions_while_writes_fail() -> None:
    """While writes fail, heartbeats are answered with an error but still extend sessions."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    members = [Member(name) for name in ("a", "b")]
    responses: list[HeartbeatResponse | ErrorCode] = []
    for member in members:
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.join_heartbeat(), responses.append)
        scene.log.commit()
    scene.cluster.set_partition_count("t", 5)
    for _ in range(100):
        if scene.log.waiting:
            scene.log.reject(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        scene.send(members[0].join_heartbeat(), responses.append)
        scene.clock.advance(1)
    assert set(responses[2:]) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    scene.log.commit()
    assert list(scene.state.members) == ["a", "b"]
    scene.advance(1)
    assert list(scene.state.members) == ["a"]
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_coordinator_loses_zookeeper() -> None:
    """Without a ZooKeeper session, the coordinator redirects members, but heartbeats still extend their sessions."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    members = [Member(name) for name in ("a", "b")]
    responses: list[HeartbeatResponse | ErrorCode] = []
    for member in members:
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.join_heartbeat(), responses.append)
        scene.log.commit()
    scene.shards.has_lease = False
    for _ in range(50):
        scene.send(members[0].heartbeat(epoch=1), responses.append)
        scene.clock.advance(1)
    assert set(responses[2:]) == {ErrorCode.NOT_COORDINATOR}
    scene.shards.has_lease = True
    scene.log.commit()
    assert list(scene.state.members) == ["a"]
    scene.unload()


def test_write_too_large() -> None:
    """A write that is too large is discarded with all later changes, and the group continues."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> hold
> b joins t
> c joins t
> reject MESSAGE_TOO_LARGE
  b: UNKNOWN_SERVER_ERROR
  c: UNKNOWN_SERVER_ERROR
> commit
> show
  Stable 1, target of 1
  a: 1 STABLE, t0 t1 t2 t3; target t0 t1 t2 t3
> a beats
  a: 1
> b joins
  b: 2, owns nothing
> show
  Reconciling 2, target of 2
  a: 1 STABLE, t0 t1 t2 t3; target t0 t1
  b: 2 UNRELEASED_PARTITIONS, nothing; target t2 t3
""")


def test_coordinator_is_lost() -> None:
    """When the coordinator is lost, pending requests are refused and members continue at the next one."""
    check_transcript("""
> hold
> a joins t
> fail-over
  a: NOT_COORDINATOR
> a joins
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> hold
> a beats
> fail-over
  a: NOT_COORDINATOR
> b beats
  b: 2
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3
""")


def test_timers_after_a_failover() -> None:
    """The next coordinator restarts session and revocation timeouts."""
    check_transcript("""
> a joins t timeout=20
  a: 1, owns t0 t1 t2 t3
> b joins t timeout=20
  b: 2, owns nothing
> a stops revoking
> a beats
  a: 1, owns t0 t1
> wait 15
> fail-over
> wait 15
> a beats
  a: 1
> wait 5
> b beats
  b: 3, owns t0 t1 t2 t3
> fail-over
> wait 44
> b commits
  b: allowed
> wait 1
> b commits
  b: UNKNOWN_MEMBER_ID
""")


HEARTBEATS = 14
"""Number of heartbeats in the test below."""


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("step", range(HEARTBEATS))
def test_failover_at_each_step(step: int, is_written: bool) -> None:
    """Whenever the coordinator dies, each of two members gets its half, and epochs never decrease."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    members = [Member(name) for name in ("a", "b")]
    epoch = 0
    for number in range(HEARTBEATS):
        member = members[number % 2 if number > 2 else 0]
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        responses: list[HeartbeatResponse | ErrorCode] = []
        scene.send(member.heartbeat(full=True), responses.append)
        if number == step:
            for records, _, _ in scene.log.waiting if is_written else ():
                scene.log.records += records
            scene.fail_over()
        scene.log.commit()
        (answer,) = responses
        if isinstance(answer, HeartbeatResponse):
            member.apply(answer)
        assert scene.shard.group(GROUP) is None or scene.state.epoch >= epoch
        epoch = scene.state.epoch if scene.shard.group(GROUP) is not None else 0
        assert sum(count(each.owned) for each in members) <= 4
    assert [count(each.owned) for each in members] == [2, 2]
    scene.unload()


def test_loaded_state_equals_written_state() -> None:
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    scene.cluster.set_partition_count("u", 2)
    subscriptions = [{"topic_names": ("t", "u")}, {"topic_names": (), "regular_expression": "[tu]"}]
    for number, subscription in enumerate(subscriptions):
        member = Member(f"m{number}")
        member.instance_id = f"i{number}"
        member.subscription = {"rebalance_timeout_ms": 1000, "server_assignor": "range", **subscription}
        scene.send(member.join_heartbeat(), lambda answer: None)
        scene.log.commit()
    for records in (scene.log.records, list(dict(scene.log.records).items())):
        replayed = ReplayedGroups()
        for key, value in records:
            replayed.replay(key, value)
        assert replayed.states() == [scene.state]
    scene.unload()


def abandoned_group() -> ConsumerScene:
    """Return a group that both members have left, while only the first leave is being written."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    for name in ("a", "b"):
        member = Member(name)
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.join_heartbeat(), lambda answer: None)
        scene.log.commit()
    for name in ("a", "b"):
        scene.send(Member(name).leave_heartbeat(), lambda answer: None)
    return scene


def test_deletion_waits_for_pending_writes() -> None:
    """The tombstones of a group follow its pending writes."""
    scene = abandoned_group()
    codes: list[ErrorCode] = []
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        scene.shard.delete(GROUP, codes.append)
    scene.log.commit()
    scene.shard.delete(GROUP, codes.append)
    scene.log.commit()
    assert codes == [ErrorCode.NONE]
    scene.fail_over()
    assert scene.shard.group(GROUP) is None
    scene.unload()


def test_unloaded_group_writes_nothing() -> None:
    """Unloading a group drops its pending changes."""
    scene = abandoned_group()
    scene.group.unload()
    scene.log.commit()
    assert not scene.log.waiting
    assert list(scene.state.members) == ["b"]
    scene.unload()


def test_deletion_covers_all_records() -> None:
    """Tombstones cover every record of a group, in the order that Kafka relies on."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 4)
    member = Member("a")
    member.subscription = {"topic_names": (), "regular_expression": "t", "rebalance_timeout_ms": 1000}
    scene.send(member.join_heartbeat(), lambda answer: None)
    scene.log.commit()
    state = scene.state
    kinds = [parse_consumer_key(key).kind for key, value in tombstones(state)]
    assert kinds == [
        RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER, RecordKind.REGULAR_EXPRESSION,
        RecordKind.TARGET_EPOCH, RecordKind.TOPICS, RecordKind.GROUP_EPOCH,
    ]  # fmt: skip
    assert not {key for key, value in scene.log.records if value is not None} - {key for key, _ in tombstones(state)}
    assert tombstones(GroupState("g")) == []
    codes: list[ErrorCode] = []
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        scene.shard.delete(GROUP, codes.append)
    scene.send(member.leave_heartbeat(), lambda answer: None)
    scene.log.commit()
    scene.shard.delete(GROUP, codes.append)
    scene.log.commit()
    assert codes == [ErrorCode.NONE]
    assert scene.shard.group(GROUP) is None
    scene.fail_over()
    assert scene.shard.group(GROUP) is None
    scene.unload()
