"""Delivery of markers to all partitions of a transaction."""

from __future__ import annotations

import pytest
from transactions_scene import P0, P1, P2, E, Scene

from kreplica.transactions import EndRequest, Identity, InitRequest, MarkersConfig


def decided_scene(*keys, markers=None, **cluster):
    """Return a scene in which a transaction with these partitions has just been decided."""
    scene = Scene(markers=markers)
    producer = scene.begin()
    scene.add(producer, *keys)
    for name, value in cluster.items():
        setattr(scene.cluster, name, value)
    scene.send_end(producer, commits=True)
    scene.log.commit()
    assert scene.answers[-1].code is E.NONE
    return scene


def test_leader_that_has_moved_is_found():
    """After NOT_LEADER_OR_FOLLOWER the marker is sent to the new leader."""
    scene = decided_scene(P0, P1, moved={P0: 1})
    scene.clock.advance(0)
    assert scene.markers_in(P0) == []
    scene.cluster.leaders[P0] = 2
    scene.settle(0.2)
    assert scene.markers_in(P0) == scene.markers_in(P1) == [True]
    assert [broker for broker, _ in scene.cluster.requests] == [1, 2, 2]
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_broker_that_is_down_does_not_delay_others():
    """Other brokers get their markers immediately; partitions of the failed broker get theirs after a leader change."""
    scene = decided_scene(P0, P1, down={1: True})
    scene.settle(5.0)
    assert scene.markers_in(P1) == [True]
    assert scene.state == "PrepareCommit"
    tries = len(scene.cluster.requests)
    assert tries < 10, "the backoff grows"
    scene.cluster.leaders[P0] = 2
    scene.settle(3.0)
    assert scene.markers_in(P0) == [True]
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_markers_wait_for_a_leader():
    """Markers wait for a leader without a time limit."""
    scene = decided_scene(P0, P1, leaders={P0: None, P1: 2})
    scene.settle(100.0)
    assert scene.state == "PrepareCommit"
    scene.cluster.leaders[P0] = 1
    scene.settle(3.0)
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_deleted_partition_is_given_up_after_a_delay():
    """Markers for a deleted partition are not dropped immediately, because metadata may be outdated."""
    scene = decided_scene(P0, P1, leaders={P1: 2})
    del scene.cluster.leaders[P1]
    scene.settle(9.0)
    assert scene.state == "PrepareCommit"
    scene.settle(4.0)
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_partition_that_returns_is_not_deleted():
    """Two short absences of a partition do not add up to a deletion."""
    scene = decided_scene(P0, leaders={})
    scene.settle(9.0)
    scene.cluster.leaders[P0] = None
    scene.settle(3.0)
    del scene.cluster.leaders[P0]
    scene.settle(9.0)
    assert scene.state == "PrepareCommit"
    scene.cluster.leaders[P0] = 1
    scene.settle(3.0)
    assert scene.markers_in(P0) == [True]
    scene.stop()


def test_broker_without_metadata_gives_up_no_partition():
    scene = decided_scene(P0, has_metadata=False)
    scene.settle(60.0)
    assert scene.state == "PrepareCommit"
    scene.cluster.has_metadata = True
    scene.settle(3.0)
    assert scene.markers_in(P0) == [True]
    scene.stop()


@pytest.mark.parametrize(
    "code", [E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.REQUEST_TIMED_OUT, E.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_retriable_errors_are_retried(code):
    scene = decided_scene(P0, answers={P0: code})
    scene.settle(20.0)
    assert scene.state == "PrepareCommit"
    scene.cluster.answers.clear()
    scene.settle(3.0)
    assert scene.state == "CompleteCommit"
    scene.stop()


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_partition_that_never_accepts_the_marker_is_skipped(code):
    """A partition with a later producer epoch or an old message format needs no marker."""
    scene = decided_scene(P0, P1, answers={P0: code})
    scene.settle()
    assert scene.state == "CompleteCommit"
    assert scene.markers_in(P1) == [True]
    scene.stop()


def test_later_coordinator_completes_the_transaction():
    """After TRANSACTION_COORDINATOR_FENCED, markers are left to the later coordinator."""
    scene = decided_scene(P0, P1, answers={P0: E.TRANSACTION_COORDINATOR_FENCED})
    scene.settle(20.0)
    assert scene.state == "PrepareCommit"
    assert scene.markers.count == 0
    scene.stop()


def test_markers_of_many_transactions_share_requests():
    """Markers collected during a request share the next one, up to the limit."""
    scene = Scene(markers=MarkersConfig(markers_per_request_max=8))
    answers = []
    for number in range(20):
        scene.coordinator.begin(f"tx-{number}", InitRequest(60_000), answers.append)
        scene.log.commit()
        scene.coordinator.add(f"tx-{number}", answers[-1].identity, [P0], lambda _: None)
        scene.log.commit()
    scene.cluster.holds_requests = True
    ended = []
    for number, begun in enumerate(list(answers)):
        scene.coordinator.end(f"tx-{number}", EndRequest(begun.identity, True, False), ended.append)
    scene.settle()
    assert len(ended) == 20
    for _ in range(3):
        scene.cluster.release()
        scene.settle()
    assert [len(body["markers"]) for _, body in scene.cluster.requests] == [8, 8, 4]
    assert len(scene.cluster.markers[P0]) == 20
    scene.stop()


def test_one_request_per_broker_at_a_time():
    """The next request is sent after the response to the previous one."""
    scene = decided_scene(P1, P2, holds_requests=True)
    scene.clock.advance(0)
    assert [
        [(topic["name"], list(topic["partition_indexes"])) for topic in marker["topics"]]
        for _, body in scene.cluster.requests
        for marker in body["markers"]
    ] == [[("t", [1, 2])]]
    for number in range(3):
        other = f"other-{number}"
        begun = []
        scene.coordinator.begin(other, InitRequest(60_000), begun.append)
        scene.log.commit()
        scene.coordinator.add(other, begun[0].identity, [P1], lambda _: None)
        scene.log.commit()
        scene.coordinator.end(other, EndRequest(begun[0].identity, True, False), begun.append)
        scene.log.commit()
        scene.clock.advance(0)
    assert len(scene.cluster.held_requests) == 1
    scene.cluster.release()
    assert [len(body["markers"]) for _, body in scene.cluster.requests] == [1, 3]
    scene.stop()


def test_unloaded_shard_drops_its_markers():
    """Queued markers are dropped, and the response in flight has no effect."""
    scene = decided_scene(P0, P1, holds_requests=True, down={2: True})
    scene.clock.advance(0)
    scene.shard.unload()
    scene.cluster.down.clear()
    scene.cluster.release()
    scene.clock.advance(30.0)
    assert [broker for broker, _ in scene.cluster.requests] == [1, 2]
    assert not scene.log.waiting
    assert scene.markers.count == 0
    scene.stop()


def test_lost_response_is_retried():
    """A marker is sent again after a lost response; the duplicate has no effect."""
    scene = decided_scene(P0, holds_requests=True)
    scene.clock.advance(0)
    scene.cluster.release(lose_response=True)
    scene.cluster.holds_requests = False
    scene.settle(0.2)
    assert scene.markers_in(P0) == [True, True]
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_empty_transaction_needs_no_markers():
    """An aborted transaction without partitions completes immediately."""
    scene = Scene()
    producer = scene.begin()
    assert scene.end(producer, commits=False, grows=True).identity == Identity(producer.producer_id, 1)
    assert scene.state == "CompleteAbort"
    assert scene.cluster.requests == []
    scene.stop()


def test_stopped_coordinator_has_no_requests():
    """A stopped coordinator leaves no requests or timers."""
    scene = decided_scene(P0, P1, holds_requests=True)
    scene.clock.advance(0)
    scene.stop()
    scene.cluster.release()
    assert not scene.log.waiting
