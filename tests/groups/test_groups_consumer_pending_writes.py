"""KIP-848 groups answer after their changes are committed, and committed changes survive the coordinator."""

from __future__ import annotations

import pytest
from consumer_scene import GROUP, ConsumerScene, Member, tells

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.assignment import count
from kreplica.groups.consumer.assignors import Assignor
from kreplica.groups.consumer.persistence import ReplayedGroups, tombstones
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState, StateName
from kreplica.groups.consumer.target_assignment import with_target
from kreplica.groups.consumer.transitions import Answer
from kreplica.groups.consumer_records import RecordKind, parse_consumer_key


def test_answers_wait_for_the_log() -> None:
    """Responses wait for the commit; members that join meanwhile share the next write."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    told: list[tuple[str, object]] = []
    for name in ("a", "b", "c"):
        member = Member(name)
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.joining(), lambda answer, name=name: told.append((name, answer)))  # type: ignore[misc]
    assert told == []
    assert len(scene.log.waiting) == 1
    scene.log.commit()
    assert [(name, answer.member_epoch) for name, answer in told if isinstance(answer, Answer)] == [
        ("a", 1), ("b", 3), ("c", 3),
    ]  # fmt: skip
    written = [parse_consumer_key(key) for key, _ in scene.log.records]
    assert [key.kind for key in written].count(RecordKind.GROUP_EPOCH) == 2
    scene.unload()


def test_hundreds_of_members_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One target is computed for all simultaneous joins, which settle in two heartbeats."""
    targets: list[int] = []

    def count_target(state: GroupState, assignors: tuple[Assignor, ...]) -> GroupState:
        targets.append(len(state.members))
        return with_target(state, assignors)

    monkeypatch.setattr("kreplica.groups.consumer.group.with_target", count_target)
    scene = ConsumerScene()
    scene.cluster.become("t", 400)
    members = [Member(f"m{number:03}") for number in range(200)]

    def send(member: Member, heartbeat: Heartbeat) -> None:
        def told(answer: Answer | ErrorCode) -> None:
            assert isinstance(answer, Answer), answer
            member.told(answer)

        scene.send(heartbeat, told)

    for member in members:
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 60_000}
        send(member, member.joining())
    scene.log.commit()
    assert targets == [1, 200]
    for _ in range(2):
        for member in members:
            send(member, member.beating())
        scene.log.commit()
    assert scene.state.name is StateName.STABLE
    assert {count(member.owned) for member in members} == {2}
    scene.unload()


def test_nothing_is_written_for_nothing() -> None:
    """A heartbeat without changes is answered immediately and writes nothing."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    member = Member("a")
    member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
    told: list[Answer | ErrorCode] = []
    scene.send(member.joining(), told.append)
    scene.log.commit()
    assert isinstance(told[0], Answer)
    member.told(told[0])
    scene.send(member.beating(), told.append)
    assert told[1] == Answer("a", 1)
    assert not scene.log.waiting
    scene.unload()


def test_a_refused_write_is_repeated() -> None:
    """A failed write is repeated until it is committed; meanwhile requests are refused."""
    tells("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> hold
> b joins t
> c joins t
> refuse
  b: COORDINATOR_NOT_AVAILABLE
  c: COORDINATOR_NOT_AVAILABLE
> a beats
  a: COORDINATOR_NOT_AVAILABLE
> a leaves
  a: COORDINATOR_NOT_AVAILABLE
> show
  Stable 1, target of 1
  a: 1 STABLE, t0 t1 t2 t3; to have t0 t1 t2 t3
> wait 1
> show
  Reconciling 2, target of 2
  a: 1 STABLE, t0 t1 t2 t3; to have t0 t1
  b: 2 UNRELEASED_PARTITIONS, nothing; to have t2 t3
> commit
> b joins
  b: 2, owns nothing
> c joins
  c: 3, owns nothing
""")


def test_a_write_while_another_might_have_led_is_repeated() -> None:
    """After a short loss of ZooKeeper the group continues."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    member = Member("a")
    member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
    told: list[Answer | ErrorCode] = []
    scene.send(member.joining(), told.append)
    scene.log.refuse(ErrorCode.NOT_COORDINATOR)
    assert told == [ErrorCode.NOT_COORDINATOR]
    scene.clock.advance(1)
    scene.log.commit()
    scene.send(member.joining(), told.append)
    scene.log.commit()
    assert isinstance(told[1], Answer)
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_sessions_while_writes_fail() -> None:
    """Heartbeats extend sessions even while they cannot be answered."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    members = [Member(name) for name in ("a", "b")]
    told: list[Answer | ErrorCode] = []
    for member in members:
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.joining(), told.append)
        scene.log.commit()
    scene.cluster.become("t", 5)
    for _ in range(100):
        if scene.log.waiting:
            scene.log.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        scene.send(members[0].joining(), told.append)
        scene.clock.advance(1)
    assert set(told[2:]) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    scene.log.commit()
    assert list(scene.state.members) == ["a", "b"]
    scene.advance(1)
    assert list(scene.state.members) == ["a"]
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_while_zookeeper_is_out_of_reach() -> None:
    """Members are redirected, and their sessions are extended."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    members = [Member(name) for name in ("a", "b")]
    told: list[Answer | ErrorCode] = []
    for member in members:
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.joining(), told.append)
        scene.log.commit()
    scene.shards.has_lease = False
    for _ in range(50):
        scene.send(members[0].beating(epoch=1), told.append)
        scene.clock.advance(1)
    assert set(told[2:]) == {ErrorCode.NOT_COORDINATOR}
    scene.shards.has_lease = True
    scene.log.commit()
    assert list(scene.state.members) == ["a"]
    scene.unload()


def test_a_write_that_is_too_large() -> None:
    """It is discarded with all later decisions, and the group continues."""
    tells("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> hold
> b joins t
> c joins t
> refuse MESSAGE_TOO_LARGE
  b: UNKNOWN_SERVER_ERROR
  c: UNKNOWN_SERVER_ERROR
> commit
> show
  Stable 1, target of 1
  a: 1 STABLE, t0 t1 t2 t3; to have t0 t1 t2 t3
> a beats
  a: 1
> b joins
  b: 2, owns nothing
> show
  Reconciling 2, target of 2
  a: 1 STABLE, t0 t1 t2 t3; to have t0 t1
  b: 2 UNRELEASED_PARTITIONS, nothing; to have t2 t3
""")


def test_a_coordinator_that_is_lost() -> None:
    """Pending requests are refused, and members continue at the next coordinator."""
    tells("""
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
    tells("""
> a joins t timeout=20
  a: 1, owns t0 t1 t2 t3
> b joins t timeout=20
  b: 2, owns nothing
> a holds on
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
  b: may
> wait 1
> b commits
  b: UNKNOWN_MEMBER_ID
""")


STORY = 14
"""Heartbeats that the story below takes."""


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("step", range(STORY))
def test_failover_at_each_step(step: int, is_written: bool) -> None:
    """Wherever the coordinator dies, two members get their halves, and epochs only grow."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    members = [Member(name) for name in ("a", "b")]
    epoch = 0
    for beat in range(STORY):
        member = members[beat % 2 if beat > 2 else 0]
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        told: list[Answer | ErrorCode] = []
        scene.send(member.beating(full=True), told.append)
        if beat == step:
            for records, _, _ in scene.log.waiting if is_written else ():
                scene.log.records += records
            scene.fail_over()
        scene.log.commit()
        (answer,) = told
        if isinstance(answer, Answer):
            member.told(answer)
        assert scene.shard.group(GROUP) is None or scene.state.epoch >= epoch
        epoch = scene.state.epoch if scene.shard.group(GROUP) is not None else 0
        assert sum(count(each.owned) for each in members) <= 4
    assert [count(each.owned) for each in members] == [2, 2]
    scene.unload()


def test_what_is_read_is_what_was_written() -> None:
    """Loading the log, compacted or not, restores the same group."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    scene.cluster.become("u", 2)
    subscriptions = [{"topic_names": ("t", "u")}, {"topic_names": (), "regular_expression": "[tu]"}]
    for number, subscription in enumerate(subscriptions):
        member = Member(f"m{number}")
        member.instance_id = f"i{number}"
        member.subscription = {"rebalance_timeout_ms": 1000, "server_assignor": "range", **subscription}
        scene.send(member.joining(), lambda answer: None)
        scene.log.commit()
    for records in (scene.log.records, list(dict(scene.log.records).items())):
        read = ReplayedGroups()
        for key, value in records:
            read.replay(key, value)
        assert read.states() == [scene.state]
    scene.unload()


def left_by_all() -> ConsumerScene:
    """A group that both members have left, with only one leave being written."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    for name in ("a", "b"):
        member = Member(name)
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.joining(), lambda answer: None)
        scene.log.commit()
    for name in ("a", "b"):
        scene.send(Member(name).leaving(), lambda answer: None)
    return scene


def test_a_group_is_not_deleted_while_it_is_written() -> None:
    """Tombstones of a group follow its pending writes."""
    scene = left_by_all()
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


def test_a_group_that_is_given_up_writes_nothing_more() -> None:
    """Unwritten changes of an unloaded group are dropped."""
    scene = left_by_all()
    scene.group.unload()
    scene.log.commit()
    assert not scene.log.waiting
    assert list(scene.state.members) == ["b"]
    scene.unload()


def test_a_deleted_group_leaves_nothing() -> None:
    """Tombstones cover every record of a group, in the order that Kafka relies on."""
    scene = ConsumerScene()
    scene.cluster.become("t", 4)
    member = Member("a")
    member.subscription = {"topic_names": (), "regular_expression": "t", "rebalance_timeout_ms": 1000}
    scene.send(member.joining(), lambda answer: None)
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
    scene.send(member.leaving(), lambda answer: None)
    scene.log.commit()
    scene.shard.delete(GROUP, codes.append)
    scene.log.commit()
    assert codes == [ErrorCode.NONE]
    assert scene.shard.group(GROUP) is None
    scene.fail_over()
    assert scene.shard.group(GROUP) is None
    scene.unload()
