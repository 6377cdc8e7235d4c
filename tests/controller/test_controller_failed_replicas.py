"""Replicas that their broker cannot use: nobody counts on what they had, and they are asked for again."""

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
    scene.forget_told()
    return scene


def fail(scene: ControllerScene, broker: int, seconds: float = 0.5) -> None:
    """A broker tells that it cannot use its replica any more."""
    scene.brokers[broker].errors = {P0: ErrorCode.KAFKA_STORAGE_ERROR}
    parent = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}"
    path = scene.brokers[broker].client.create(parent, documents.encode_log_dir_event(broker), sequence=True)
    scene.run(path)
    scene.settle(seconds)


def test_a_replica_that_failed_is_not_eligible() -> None:
    """With one other left it left the in-sync set while nothing could be committed: but what it has nobody knows."""
    scene = made()
    scene.brokers[3].kill()
    scene.await_expiry()
    fail(scene, 1)
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), ())


def test_where_it_led_alone_the_eligible_stand_in() -> None:
    """Alone it committed nothing: the one that left before it has all that is committed, and must come back."""
    scene = made()
    for broker in (2, 3):
        scene.brokers[broker].kill()
        scene.await_expiry()
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (1, (1,), (3,))
    fail(scene, 1)
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (-1, (3,), ())


def test_another_leader_epoch_begins_though_nothing_else_changed() -> None:
    """A replica that was out of sync already: its leader may be about to let it in, by what it knew of it, or has, and
    the controller was not told yet.  In the next epoch it does so only when the replica has fetched anew."""
    scene = made()
    scene.run(scene.brokers[1].write_isr(P0, (1, 2)))
    scene.settle()
    before = scene.state("t", 0)
    fail(scene, 3)
    state = scene.state("t", 0)
    assert (state.leader, state.isr) == (1, (1, 2))
    assert state.leader_epoch == before.leader_epoch + 1


def test_nobody_is_told_anew_of_what_is_known_to_have_failed() -> None:
    """A broker says again and again that it cannot use its replica: one leader epoch is enough."""
    scene = made()
    fail(scene, 3)
    before = scene.state("t", 0)
    fail(scene, 3, 60.0)
    assert scene.state("t", 0) == before


def test_it_is_asked_for_soon() -> None:
    """Now that others lead, the broker may begin it anew; its answer brings it back."""
    scene = made()
    fail(scene, 1)
    assert scene.context.offline_replicas(P0) == (1,)
    scene.brokers[1].errors = {}
    scene.settle(FIRST_RETRY_SECONDS)
    assert scene.context.offline_replicas(P0) == ()
    told = scene.brokers[1].told_of("LeaderAndIsr")[-1].partitions[P0]
    assert (told["leader"], told["isr"]) == (2, [2, 3])


def test_what_is_back_is_told_of_the_latest_epoch() -> None:
    """It was opened under an earlier command, and counted as failed while later ones went to the others."""
    scene = made()
    fail(scene, 1)
    latest = scene.state("t", 0)
    scene.brokers[1].errors = {}
    scene.forget_told()
    scene.controller.queue.put(ReplicasRecovered(1, (P0,)))
    scene.settle(FIRST_RETRY_SECONDS / 10)
    told = scene.brokers[1].told_of("LeaderAndIsr")[-1].partitions[P0]
    assert (told["leader"], told["leader_epoch"]) == (latest.leader, latest.leader_epoch)
