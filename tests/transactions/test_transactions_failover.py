"""Failover of the coordinator between any two steps: all partitions have the acknowledged outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transactions_scene import P0, P1, E, Scene

from kreplica.transactions import Identity

Step = Callable[[Scene], object]


class Story:
    """One transaction of one producer, divided into the smallest observable steps."""

    def __init__(self, *, commits: bool, grows: bool) -> None:
        self.commits = commits
        self.grows = grows
        self.scene = Scene()
        self.scene.cluster.holds_requests = True
        self.producer = Identity(-1, -1)
        self.end_response = False

    def steps(self) -> list[Callable[[], object]]:
        scene = self.scene
        return [
            scene.send_begin,
            scene.log.commit,
            self._store_identity,
            lambda: scene.send_add(self.producer, P0, P1),
            lambda: scene.log.commit(1),
            self._end,
            lambda: scene.log.commit(1),
            lambda: scene.clock.advance(0),
            lambda: scene.cluster.release(1, lose_response=True),
            lambda: scene.cluster.release(1),
            lambda: scene.clock.advance(1.0),
            lambda: scene.cluster.release(),
            lambda: scene.log.commit(1),
        ]

    def _store_identity(self) -> None:
        self.producer = self.scene.answers[-1].identity

    def _end(self) -> None:
        self.scene.send_end(self.producer, commits=self.commits, grows=self.grows)

    @property
    def end_was_acknowledged(self) -> bool:
        """Return True if EndTxn was acknowledged."""
        return len(self.scene.answers) == 3 and self.scene.answers[-1].code is E.NONE


STEP_COUNT = len(Story(commits=True, grows=True).steps())


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("survives", [False, True])
@pytest.mark.parametrize("step", range(STEP_COUNT + 1))
def test_transaction_is_decided_once_across_failovers(step, survives, commits, grows):
    """Whenever the coordinator fails over, all partitions have the same outcome after the producer retries."""
    story = Story(commits=commits, grows=grows)
    scene = story.scene
    for one in story.steps()[:step]:
        one()
    acknowledged = story.end_was_acknowledged
    scene.fail_over(survives=survives)
    scene.cluster.holds_requests = False
    scene.cluster.release()
    scene.settle(15.0)
    if story.producer.producer_id < 0:
        story.producer = scene.begin()
    _retry(story)
    decided = scene.cluster.decisions()
    assert all(len(outcomes) == 1 for outcomes in decided.values()), decided
    assert {commits} == set().union(*decided.values())
    assert set(scene.markers_in(P0)) == set(scene.markers_in(P1)) == {commits}
    assert scene.state == ("CompleteCommit" if commits else "CompleteAbort")
    if acknowledged:
        assert step >= 7, "the end was acknowledged before it was in the log"
    scene.stop()


def _retry(story: Story) -> None:
    """Repeat the last requests until they succeed, as a producer does after a failover."""
    scene = story.scene
    if "Complete" not in scene.state:
        assert scene.add(story.producer, P0, P1) is E.NONE
    assert scene.end(story.producer, commits=story.commits, grows=story.grows).code is E.NONE


@pytest.mark.parametrize("survives", [False, True])
def test_abandoned_transaction_is_decided(survives):
    """If the producer never retries, a decision in the log is executed; otherwise the transaction times out."""
    scene = Scene()
    producer = scene.begin(timeout_ms=30_000)
    scene.add(producer, P0, P1)
    scene.send_end(producer, commits=True)
    scene.fail_over(survives=survives)
    scene.settle(60.0)
    assert scene.markers_in(P0) == scene.markers_in(P1) == [survives]
    assert scene.state == ("CompleteCommit" if survives else "CompleteAbort")
    scene.stop()


def test_late_markers_of_a_former_coordinator_are_refused():
    """The former coordinator completes no transaction."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.cluster.holds_requests = True
    scene.end(producer, commits=True)
    former, former_log = scene.coordinator, scene.log
    late_requests, scene.cluster.held_requests = scene.cluster.held_requests, []
    scene.take_over()
    scene.cluster.holds_requests = False
    scene.settle()
    assert scene.state == "CompleteCommit"
    scene.cluster.held_requests = late_requests
    scene.cluster.release()
    assert [marker.coordinator_epoch for marker in scene.cluster.markers[P0]] == [1]
    assert not former_log.waiting, "it wrote nothing afterwards"
    former.stop()
    scene.stop()


def test_ongoing_transaction_continues_at_another_broker():
    """After a failover, the transaction keeps its partitions and start time."""
    scene = Scene()
    producer = scene.begin(timeout_ms=60_000)
    scene.add(producer, P0)
    scene.settle(50.0)
    scene.fail_over()
    assert scene.add(producer, P1) is E.NONE
    assert scene.coordinator.verify("tx", producer, [P0, P1]) == {P0: E.NONE, P1: E.NONE}
    scene.settle(21.0)
    assert scene.state == "CompleteAbort"
    scene.stop()


def test_fence_without_a_decision():
    """A transaction loaded in Kafka's state PrepareEpochFence remains ongoing until its timeout."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    key, value = scene.records[-1]
    assert value is not None
    scene.records.append((key, value[:16] + b"\x07" + value[17:]))
    scene.records.append((key[:2] + b"\x00\x04dead", value[:16] + b"\x06" + value[17:]))
    scene.records.append((b"\x00\x09" + key[2:], b"unknown record type"))
    scene.fail_over()
    assert scene.state == "Ongoing"
    assert scene.shard.get("dead") is None
    scene.settle(80.0)
    assert scene.markers_in(P0) == [False]
    scene.stop()
