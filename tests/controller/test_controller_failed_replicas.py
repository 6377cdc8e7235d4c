"""Replicas in failed log directories: they lose all roles and are retried."""

from __future__ import annotations

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import ReplicasRecovered
from kreplica.controller.handlers.failed_replicas import FIRST_RETRY_SECONDS
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from tests.support.controller_scene import ControllerScene

P0 = TopicPartition("t", 0)


def made() -> ControllerScene:
    scene = ControllerScene(brokers=3)
    scene.start()
    scene.make_topic("t", {0: (1, 2, 3)})
    scene.clear_received()
    return scene


def fail(scene: ControllerScene, broker: int, seconds: float = 0.5) -> None:
    """Make a broker report that it cannot use its replica."""
    scene.brokers[broker].errors = {P0: ErrorCode.KAFKA_STORAGE_ERROR}
    parent = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}"
    path = scene.brokers[broker].client.create(parent, documents.encode_log_dir_event(broker), sequence=True)
    scene.run(path)
    scene.settle(seconds)


def test_a_failed_replica_is_not_eligible() -> None:
    """A failed replica loses its eligibility, because the contents of its log are unknown."""
    scene = made()
    scene.brokers[3].kill()
    scene.await_expiry()
    fail(scene, 1)
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), ())


def test_eligible_replicas_replace_a_failed_single_leader() -> None:
    """A leader that was alone in the ISR committed nothing, so the eligible replica holds every committed record."""
    scene = made()
    for broker in (2, 3):
        scene.brokers[broker].kill()
        scene.await_expiry()
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (1, (1,), (3,))
    fail(scene, 1)
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (-1, (3,), ())


def test_a_failed_follower_starts_a_new_leader_epoch() -> None:
    """The leader may be about to add an out-of-sync follower that failed to the ISR.  In the new epoch, it adds the
    follower only after a new fetch.
    """
    scene = made()
    scene.run(scene.brokers[1].write_isr(P0, (1, 2)))
    scene.settle()
    before = scene.state("t", 0)
    fail(scene, 3)
    state = scene.state("t", 0)
    assert (state.leader, state.isr) == (1, (1, 2))
    assert state.leader_epoch == before.leader_epoch + 1


def test_repeated_failure_reports_change_nothing() -> None:
    """Repeated reports of the same failed replica cause only one new leader epoch."""
    scene = made()
    fail(scene, 3)
    before = scene.state("t", 0)
    fail(scene, 3, 60.0)
    assert scene.state("t", 0) == before


def test_a_failed_replica_is_retried_soon() -> None:
    """After another leader is elected, the broker may recreate the replica, which its response then brings back."""
    scene = made()
    fail(scene, 1)
    assert scene.context.offline_replicas(P0) == (1,)
    scene.brokers[1].errors = {}
    scene.settle(FIRST_RETRY_SECONDS)
    assert scene.context.offline_replicas(P0) == ()
    received = scene.brokers[1].received_of("LeaderAndIsr")[-1].partitions[P0]
    assert (received["leader"], received["isr"]) == (2, [2, 3])


def test_a_recovered_replica_receives_the_latest_epoch() -> None:
    """The replica was opened with an old command, and missed later commands while it was considered failed."""
    scene = made()
    fail(scene, 1)
    latest = scene.state("t", 0)
    scene.brokers[1].errors = {}
    scene.clear_received()
    scene.controller.queue.put(ReplicasRecovered(1, (P0,)))
    scene.settle(FIRST_RETRY_SECONDS / 10)
    received = scene.brokers[1].received_of("LeaderAndIsr")[-1].partitions[P0]
    assert (received["leader"], received["leader_epoch"]) == (latest.leader, latest.leader_epoch)
