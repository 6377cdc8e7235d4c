"""Elections without a failure: preferred leaders on request or periodically, and unclean leaders on request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import ElectionRequested, ElectionType
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from tests.support.controller_scene import ControllerScene

P0, P1, P2, P3 = (TopicPartition("t", number) for number in range(4))
TOPIC = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3)}
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def move_leaders_away(scene: ControllerScene) -> None:
    """Restart broker 1, so that other brokers lead its preferred partitions."""
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.run(scene.brokers[1].start())
    scene.settle()


@pytest.fixture
def scene() -> ControllerScene:
    made = ControllerScene(brokers=3)
    made.start()
    made.make_topic("t", TOPIC)
    return made


def test_preferred_leaders_on_request(scene: ControllerScene) -> None:
    """Each partition has its own result; the leader changes in the next epoch, and the ISR does not change."""
    move_leaders_away(scene)
    scene.run(scene.brokers[2].write_isr(P0, (2, 3, 1)))
    scene.settle()
    before = scene.state("t", 0)
    answer = scene.ask(ElectionRequested(PREFERRED, [P0, P1, P3, TopicPartition("t", 9), TopicPartition("u", 0)]))
    assert answer == {
        P0: ErrorCode.NONE,
        P1: ErrorCode.ELECTION_NOT_NEEDED,
        P3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        TopicPartition("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    after = scene.state("t", 0)
    assert (after.leader, after.leader_epoch, after.isr) == (1, before.leader_epoch + 1, before.isr)


def test_all_partitions_on_request(scene: ControllerScene) -> None:
    """A null list of partitions requests an election for all."""
    answer = scene.ask(ElectionRequested(PREFERRED, None))
    assert answer == dict.fromkeys([P0, P1, P2, P3], ErrorCode.ELECTION_NOT_NEEDED)


def test_unclean_leaders_on_request(scene: ControllerScene) -> None:
    """An unclean election is held only for partitions without a leader."""
    scene.run(scene.brokers[1].write_isr(P0, (1,)))
    scene.run(scene.brokers[1].write_isr(P3, (1,)))
    scene.settle()
    for number in (3, 1):
        scene.brokers[number].kill()
        scene.await_expiry()
    assert [scene.state("t", number).leader for number in TOPIC] == [NO_LEADER, 2, 2, NO_LEADER]
    answer = scene.ask(ElectionRequested(UNCLEAN, [P0, P1, P3]))
    assert answer == {
        P0: ErrorCode.NONE,
        P1: ErrorCode.ELECTION_NOT_NEEDED,
        P3: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), ())


def test_preferred_leaders_by_znode(scene: ControllerScene) -> None:
    """The znode that older tools write is removed after the election, even if its content is invalid."""
    move_leaders_away(scene)
    scene.run(scene.brokers[2].write_isr(P0, (2, 3, 1)))
    path = znodes.PREFERRED_REPLICA_ELECTION
    for document in (documents.encode_partitions([P0, P3, TopicPartition("gone", 0)]), b"nonsense"):
        scene.run(scene.zookeeper.create(path, document))
        scene.settle()
        assert scene.run(scene.zookeeper.exists(path)) is None
        assert scene.state("t", 0).leader == 1


def test_preferred_leaders_periodically() -> None:
    """If the imbalance is too large, leaders move back soon after a term starts, and then at intervals."""
    scene = ControllerScene(brokers=3)
    scripted = scene.controllers[101]
    scripted.config = replace(scripted.config, rebalance=True, rebalance_interval_s=60.0, imbalance_percentage=40)
    scene.start()
    scene.make_topic("t", TOPIC)
    move_leaders_away(scene)
    scene.run(scene.brokers[2].write_isr(P0, (2, 3, 1)))
    scene.settle(70)
    assert scene.state("t", 0).leader == 1
    assert scene.state("t", 3).leader == 3, "its preferred replica is not in sync"
    scene.run(scene.brokers[3].write_isr(P3, (3, 1)))
    scene.settle(70)
    assert scene.state("t", 3).leader == 1, "broker 1 leads only half of its preferred partitions"
    scene.make_topic("u", {0: (1, 2), 1: (1, 2)})
    move_leaders_away(scene)
    for partition, leader in ((P0, 2), (TopicPartition("u", 0), 2), (TopicPartition("u", 1), 2)):
        scene.run(scene.brokers[leader].write_isr(partition, (2, 1)))
    scene.settle(70)
    assert scene.state("t", 0).leader == 1
    assert [scene.state("u", number).leader for number in (0, 1)] == [1, 1]
    scene.run(scene.brokers[3].write_isr(P3, (3, 1)))
    scene.settle(70)
    assert scene.state("t", 3).leader == 3, "a quarter is within the tolerance"
