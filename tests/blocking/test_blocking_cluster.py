"""Metadata and retries of the blocking client."""

from __future__ import annotations

import pytest
from scripted_brokers import ScriptedBrokers

from kreplica.blocking import TopicPartition
from kreplica.blocking.offsets import end_offsets
from kreplica.client_core.errors import BrokerRefused, ConnectionFailed, GaveUp, LeaderUnknown
from kreplica.errors import ErrorCode
from kreplica.wire.messages import LIST_OFFSETS, METADATA

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_cluster_is_found_through_any_broker() -> None:
    """The client finds the cluster through any address, and does not try a dead broker first again."""
    for _ in range(3):
        brokers = ScriptedBrokers(3, leaders=(2,))
        brokers[1].kill()
        brokers[2].kill()
        cluster = brokers.cluster()
        assert cluster.find_topic("t").partitions[0].leader == 2
        assert len(brokers[3].requests_to(METADATA)) == 1
        cluster.refresh()
        assert len(brokers[3].requests_to(METADATA)) == 2


def test_no_broker_responds() -> None:
    """If no broker responds, the operation fails after its timeout, with the last error as the cause."""
    brokers = ScriptedBrokers()
    brokers[1].kill()
    with pytest.raises(GaveUp, match="refused") as failure:
        brokers.cluster().find_topic("t", timeout_s=20)
    assert isinstance(failure.value.__cause__, ConnectionFailed)
    assert 15 < brokers.now_s - 1000 <= 20


def test_delays_double_up_to_a_bound_with_jitter() -> None:
    brokers = ScriptedBrokers()
    brokers[1].kill()
    with pytest.raises(GaveUp):
        brokers.cluster(backoff_s=0.1, backoff_s_max=2.0).find_topic("t", timeout_s=30)
    for number, slept in enumerate(brokers.sleeps):
        whole = min(0.1 * 2**number, 2.0)
        assert whole / 2 <= slept <= whole
    assert len({round(slept / 2, 3) for slept in brokers.sleeps[6:]}) > 3


def test_missing_topic() -> None:
    """The topic may be new, so the client retries for a short time; then the error names the topic."""
    brokers = ScriptedBrokers()
    with pytest.raises(GaveUp, match="nope") as failure:
        brokers.cluster().find_topic("nope", timeout_s=3)
    assert isinstance(failure.value.__cause__, BrokerRefused)
    assert failure.value.__cause__.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_outdated_metadata_does_not_restore_an_old_leader() -> None:
    """Metadata with an earlier leader epoch does not replace the known leader."""
    brokers = ScriptedBrokers(2, leaders=(1,))
    brokers.move(0, 2)
    cluster = brokers.cluster()
    assert cluster.leader(T0) == 2
    brokers.leaders, brokers.epochs = [1], [0]
    cluster.refresh()
    assert cluster.leader(T0) == 2
    brokers.move(0, 1)
    brokers.move(0, 1)
    cluster.refresh()
    assert cluster.leader(T0) == 1


def test_partition_without_leader() -> None:
    """A missing leader is a retriable error, and the next attempt refreshes the metadata."""
    brokers = ScriptedBrokers(leaders=(-1,))
    cluster = brokers.cluster()
    with pytest.raises(LeaderUnknown) as failure:
        cluster.leader(T0)
    assert failure.value.retriable
    brokers.move(0, 1)
    assert cluster.leader(T0) == 1


def test_offsets_are_requested_from_leaders() -> None:
    """After a leader moves, only the partitions without a response are requested again."""
    brokers = ScriptedBrokers(2, leaders=(1, 2))

    def answer(request, error=0):
        rows = [
            {"partition_index": row["partition_index"], "error_code": error, "timestamp": -1, "offset": 42}
            for topic in request.body["topics"]
            for row in topic["partitions"]
        ]
        return {"throttle_time_ms": 0, "topics": [{"name": "t", "partitions": rows}]}

    def moved(request):
        brokers.move(1, 1)
        return answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    brokers[1].always(LIST_OFFSETS, answer)
    brokers[2].then(LIST_OFFSETS, moved)
    assert end_offsets(brokers.cluster(), [T0, T1]) == {T0: 42, T1: 42}
    first, second = brokers[1].requests_to(LIST_OFFSETS)
    assert [row["partition_index"] for row in first.body["topics"][0]["partitions"]] == [0]
    assert [row["partition_index"] for row in second.body["topics"][0]["partitions"]] == [1]
