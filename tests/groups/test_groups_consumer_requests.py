"""Invalid heartbeats and administrative requests for KIP-848 groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from consumer_scene import GROUP, ConsumerScene, Member

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.requests import Heartbeat, read_heartbeat
from kreplica.groups.consumer.transitions import HeartbeatResponse
from kreplica.wire.messages import CONSUMER_GROUP_HEARTBEAT

JOIN = Heartbeat(GROUP, "a", 0, rebalance_timeout_ms=1000, topic_names=("t",), owned={})
BEAT = Heartbeat(GROUP, "a", 1)
TOPIC_ID = UUID(int=7)
TOO_LONG = "x" * 2**15


def answer_to(heartbeat: Heartbeat, version: int = 1, **config: Any) -> HeartbeatResponse | ErrorCode:
    """Return the response of a coordinator without groups."""
    scene = ConsumerScene(**config)
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(heartbeat, responses.append, version)
    scene.log.commit()
    scene.unload()
    assert scene.clock.getDelayedCalls() == []
    return responses[0]


@pytest.mark.parametrize(
    ("heartbeat", "code"),
    [
        (replace(JOIN, group_id=""), ErrorCode.INVALID_GROUP_ID),
        (replace(JOIN, group_id=TOO_LONG), ErrorCode.INVALID_GROUP_ID),
        (replace(JOIN, member_id=""), ErrorCode.INVALID_REQUEST),
        (replace(BEAT, member_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, member_id=TOO_LONG), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, instance_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, instance_id=TOO_LONG), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rack_id=" "), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, regular_expression="é" * 2**14), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, owned=None), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, topic_names=None), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, topic_names=tuple(map(str, range(100_001)))), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, server_assignor="sticky"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (replace(JOIN, regular_expression="a("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (replace(BEAT, member_epoch=-3), ErrorCode.INVALID_REQUEST),
        (replace(BEAT, member_epoch=-2), ErrorCode.INVALID_REQUEST),
        (BEAT, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_heartbeats_are_refused(heartbeat: Heartbeat, code: ErrorCode) -> None:
    """Each invalid heartbeat gets the expected error code."""
    assert answer_to(heartbeat) is code


def test_protocol_is_not_enabled() -> None:
    """Without ``consumer`` in ``group.coordinator.rebalance.protocols`` the error is UNSUPPORTED_VERSION."""
    assert answer_to(JOIN, enabled=False) is ErrorCode.UNSUPPORTED_VERSION
    scene = ConsumerScene(enabled=False)
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        scene.coordinator.describe(GROUP)
    scene.unload()


def test_member_ids_of_version_0() -> None:
    """In version 0, the coordinator generates the member ID if there is none."""
    answer = answer_to(replace(JOIN, member_id=""), 0)
    assert isinstance(answer, HeartbeatResponse)
    assert len(answer.member_id) == 22
    assert answer.member_epoch == 1


def test_subscription_to_missing_topics() -> None:
    """A member that subscribes only to missing topics gets no partitions."""
    for heartbeat in (
        replace(JOIN, topic_names=()),
        replace(JOIN, topic_names=None, regular_expression=""),
        replace(JOIN, topic_names=None, regular_expression="x.*"),
    ):
        assert answer_to(heartbeat) == HeartbeatResponse("a", 1, {})


def test_broker_that_is_not_the_coordinator() -> None:
    """A broker that is not the coordinator refuses heartbeats and descriptions."""
    scene = ConsumerScene()
    scene.unload()
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(JOIN, responses.append)
    assert responses == [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        scene.coordinator.describe(GROUP)


def test_parsing_a_request() -> None:
    """Duplicate names and topics are merged; version 0 has no regular expression."""
    body = CONSUMER_GROUP_HEARTBEAT.request.parse(
        0,
        CONSUMER_GROUP_HEARTBEAT.request.build(
            0,
            {
                "group_id": "g",
                "member_id": "m",
                "member_epoch": 3,
                "subscribed_topic_names": ["u", "t", "u"],
                "topic_partitions": [
                    {"topic_id": TOPIC_ID, "partitions": [1]},
                    {"topic_id": TOPIC_ID, "partitions": [2, 1]},
                ],
            },
        ),
    )
    heartbeat = read_heartbeat(body, None, "/::1")
    assert heartbeat == Heartbeat(
        "g", "m", 3, topic_names=("t", "u"), owned={TOPIC_ID: frozenset({1, 2})}, client_host="/::1"
    )
    assert not heartbeat.is_full


def test_describe() -> None:
    """The committed state of a group is described; a group that was never committed is not found."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 2)
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        scene.coordinator.describe(GROUP)
    scene.send(JOIN, lambda answer: None)
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        scene.coordinator.describe(GROUP)
    assert scene.group.state_name == "Dead"
    scene.log.commit()
    state = scene.coordinator.describe(GROUP)
    assert state.name.value == scene.group.state_name == "Stable"
    assert scene.coordinator.assignor_of(state) == "uniform"
    assert scene.group.is_subscribed_to("t")
    assert not scene.group.is_subscribed_to("u")
    assert scene.group.expires_from_ms("t", 5) is None
    assert scene.group.expires_from_ms("u", 5) == 5
    scene.unload()


def test_commits_of_old_clients_and_in_transactions() -> None:
    """OffsetCommit before version 9 is refused; TxnOffsetCommit before KIP-447 has no member and is accepted."""
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 2)
    scene.send(JOIN, lambda answer: None)
    scene.log.commit()
    group = scene.group
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        group.check_commit("a", None, 1, transactional=False, version=8)
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        group.check_commit("a", None, 0, transactional=True, version=3)
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        group.check_commit("", None, -1, transactional=False, version=9)
    group.check_commit("a", None, 1, transactional=False, version=9)
    group.check_commit("a", None, 1, transactional=True, version=3)
    group.check_commit("", None, -1, transactional=True, version=2)
    group.check_fetch("a", 1)
    group.check_fetch(None, -1)
    group.check_offset_delete()
    scene.unload()


def test_pending_heartbeats_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats are refused when too many of them wait for a write."""
    monkeypatch.setattr("kreplica.groups.consumer.group.WAITING_MAX", 3)
    scene = ConsumerScene()
    scene.cluster.set_partition_count("t", 2)
    responses: list[HeartbeatResponse | ErrorCode] = []
    for number in range(5):
        member = Member(f"m{number}")
        member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        scene.send(member.join_heartbeat(), responses.append)
    assert responses == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    scene.log.commit()
    assert len(scene.state.members) == 3
    scene.unload()
