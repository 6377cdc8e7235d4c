"""The controller's history: the cause of each decision, and audit events."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

import kreplica.controller
from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import AlterReassignmentsRequested, BrokersChanged, Event, ShutdownRequested
from kreplica.controller.history import audit_events, decision_log
from kreplica.controller.history.audit_events import KINDS, AuditEvents, key_of
from kreplica.controller.history.causes import _BY_NAME, cause_of
from kreplica.controller.history.controller_history import ControllerHistory
from kreplica.controller.history.decision_log import Cause, DecisionLog
from kreplica.controller.history.step_timeline import Timeline
from kreplica.model import LeaderAndIsr, TopicPartition
from kreplica.testing.simulator.simulation import START_MS
from kreplica.zookeeper import Create, SessionState
from tests.support.controller_scene import ControllerScene

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
ROUND = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


@pytest.fixture
def scene() -> ControllerScene:
    made = ControllerScene(brokers=3)
    made.start()
    made.make_topic("t", ROUND)
    return made


def history(scene: ControllerScene, controller: int = 101) -> ControllerHistory:
    return scene.controllers[controller].controller.history


def kinds(scene: ControllerScene, controller: int = 101) -> list[str]:
    return [entry.kind for entry in history(scene, controller).audit_events]


def texts(scene: ControllerScene, kind: str, controller: int = 101) -> list[str]:
    return [entry.text for entry in history(scene, controller).audit_events if entry.kind == kind]


def test_each_decision_has_its_cause(scene: ControllerScene) -> None:
    """The decision on a new leader has its controller, epochs, event and time."""
    before_ms = scene.controllers[101].host.clock.now_ms()
    scene.brokers[1].kill()
    scene.await_expiry()
    latest, first = history(scene).decisions(P0)
    assert latest.change == "leader 1 -> 2, leader epoch 0 -> 1, in sync [1, 2, 3] -> [2, 3]"
    assert latest.cause.event == "BrokersChanged"
    assert latest.cause.text == "broker 1 left"
    assert latest.cause.controller_epoch == scene.context.controller_epoch
    assert before_ms < latest.cause.at_ms < scene.controllers[101].host.clock.now_ms()
    assert list(latest.cause.notified_brokers) == [2, 3]
    assert (first.change, first.cause.event) == ("broker 1 is the first leader, in sync [1, 2, 3]", "TopicsChanged")


def test_brokers_that_have_not_answered(scene: ControllerScene) -> None:
    """A broker that does not respond is listed for exactly the decisions that were sent to it."""
    scene.brokers[2].silent = True
    scene.brokers[1].kill()
    scene.await_expiry()
    assert [list(decision.unanswered) for decision in history(scene).decisions(P0)] == [[2], []]
    assert [entry.details["broker"] for entry in history(scene).audit_events if entry.kind == "broker_late"] == [2]
    scene.brokers[2].silent = False
    scene.settle(10.0)
    assert [list(decision.unanswered) for decision in history(scene).decisions(P0)] == [[], []]


def test_leaders_decisions_are_recorded(scene: ControllerScene) -> None:
    """An ISR that a leader wrote is recorded with its previous state."""
    scene.run(scene.brokers[1].write_isr(P0, (1, 3)))
    scene.settle()
    decision = next(history(scene).decisions(P0))
    assert (decision.change, decision.cause.event) == ("in sync [1, 2, 3] -> [1, 3]", "InSyncSetsChanged")
    assert decision.is_by_leader
    shrunk = [entry for entry in history(scene).audit_events if entry.kind == "isr_shrunk"]
    assert [(entry.subject, entry.details["from_brokers"]) for entry in shrunk] == [("partition t-0", {"2": 1})]
    scene.run(scene.brokers[1].write_isr(P0, (1, 3, 2)))
    scene.settle()
    assert texts(scene, "isr_expanded") == ["a leader changed its ISR: partition t-0 has more replicas in sync"]


def test_history_outlasts_the_term() -> None:
    """A former controller keeps its history, and the next controller records why it took over."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    client = scene.controllers[101].controller._client
    scene.run(client.delete(znodes.CONTROLLER))
    scene.settle(5.0)
    is_active, other = (101, 102) if scene.controllers[101].is_active else (102, 101)
    assert kinds(scene, 101)[-1 if other == 101 else -2] == ("controller_resigned")
    assert next(history(scene, 101).decisions(P0)).change.startswith("broker 1 is the first leader")
    assert kinds(scene, is_active)[-1] == "controller_elected"
    assert next(history(scene, is_active).audit_events.newest()).controller_epoch == 2


def test_a_takeover_records_earlier_failures() -> None:
    """The next controller records a failure that happened without a controller, and its effects."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    scene.controllers[101].kill()
    scene.brokers[1].kill()
    scene.await_expiry()
    assert kinds(scene, 102) == ["controller_elected", "broker_left", "leaders_moved", "isr_shrunk"]
    assert list(history(scene, 102).left_ms) == [1]
    cause = next(history(scene, 102).decisions(P0)).cause
    assert cause.text == "broker 102 became the controller in epoch 2; broker 1 left before that"
    assert cause.controller_epoch == 2


def test_leaders_that_move_are_one_entry(scene: ControllerScene) -> None:
    """One event that moves many leaders is one entry, with counts and a few examples."""
    scene.make_topic("many", dict.fromkeys(range(300), (1, 2, 3)))
    scene.brokers[1].kill()
    scene.await_expiry()
    entries = [entry for entry in history(scene).audit_events if entry.kind in ("leaders_moved", "isr_shrunk")]
    moved, shrunk = entries
    assert moved.text == "broker 1 left: 301 partitions have a new leader"
    assert (moved.details["from_brokers"], moved.details["to_brokers"]) == ({"1": 301}, {"2": 301})
    assert len(moved.details["examples"]) == audit_events.EXAMPLES_MAX
    assert (shrunk.details["count"], shrunk.details["from_brokers"]) == (2, {"1": 2})


def test_partitions_without_a_leader_and_their_return(scene: ControllerScene) -> None:
    """A partition is recorded as offline when its last replica fails, and as online when it is back."""
    scene.make_topic("alone", {0: (3,)})
    scene.brokers[3].kill()
    scene.await_expiry()
    assert texts(scene, "partitions_offline") == ["broker 3 left: partition alone-0 has no leader"]
    assert list(history(scene).left_ms) == [3]
    scene.run(scene.brokers[3].start())
    scene.settle()
    assert texts(scene, "partitions_online") == ["broker 3 joined: partition alone-0 has a leader again"]
    assert history(scene).left_ms == {}


def test_controlled_shutdowns_and_failures_differ(scene: ControllerScene) -> None:
    """A controlled shutdown is recorded differently from a failure."""
    scene.ask(ShutdownRequested(2, scene.brokers[2].epoch))
    scene.ask(ShutdownRequested(2, scene.brokers[2].epoch))
    assert texts(scene, "broker_stopping") == ["broker 2 requested a controlled shutdown: its leaders are being moved"]
    moved = [entry for entry in history(scene).audit_events if entry.kind == "leaders_moved"]
    text = "broker 2 requested a controlled shutdown: partition t-1 has a new leader"
    assert [entry.text for entry in moved] == [text]
    scene.brokers[2].kill()
    scene.await_expiry()
    assert texts(scene, "broker_left") == ["broker 2 left after a controlled shutdown"]
    with scene.unnoticed():
        scene.brokers[3].kill()
        scene.run(scene.brokers[3].start())
    assert texts(scene, "broker_restarted") == ["broker 3 registered again"]


def test_topics_and_reassignments_are_recorded(scene: ControllerScene) -> None:
    """Creations, deletions and new partitions of topics are recorded, as well as started and rejected reassignments."""
    scene.make_topic("moving", {0: (1, 2), 1: (2, 1)})
    targets = {TopicPartition("moving", 0): (1, 3), TopicPartition("moving", 7): (1,)}
    results = scene.ask(AlterReassignmentsRequested(targets))
    assert [error is None for error in results.values()] == [True, False]
    scene.run(scene.brokers[1].write_isr(TopicPartition("moving", 0), (1, 2, 3)))
    scene.settle()
    delete = Create(f"{znodes.DELETE_TOPICS}/moving", b"")
    scene.run(scene.zookeeper.multi([delete]))
    scene.settle(5.0)
    found = [(entry.kind, entry.subject) for entry in history(scene).audit_events][-7:]
    assert found == [
        ("topics_created", "topic moving"),
        ("reassignments_started", "partition moving-0"),
        ("reassignments_rejected", "partition moving-7"),
        ("isr_expanded", "partition moving-0"),
        ("reassignments_finished", "partition moving-0"),
        ("topics_deleting", "topic moving"),
        ("topics_deleted", "topic moving"),
    ]


def _requests(parent: str) -> list[Create]:
    return [Create(parent, b""), Create(f"{parent}/3", b"[1,2,3]"), Create(f"{parent}/9", b"{")]


def test_new_topics_and_new_partitions_differ(scene: ControllerScene) -> None:
    """Added partitions are recorded with their number, and rejected requests with the reason."""
    parent = znodes.partitions_add_path("t")
    scene.run(scene.zookeeper.multi(_requests(parent)))
    scene.settle()
    assert texts(scene, "partitions_added") == ["topic t: 1 new partitions in total"]
    (refused,) = texts(scene, "requests_rejected")
    assert refused.startswith(f"request {parent}/9 rejected: ")


def test_a_failed_log_directory_is_recorded_with_its_replicas(scene: ControllerScene) -> None:
    """The entries name the broker and the replicas that it cannot use."""
    path = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}0000000000"
    scene.run(scene.zookeeper.multi([Create(path, documents.encode_log_dir_event(2))]))
    scene.settle()
    assert texts(scene, "log_dir_failed") == ["a log directory of broker 2 failed"]


def test_entries_keep_their_order_if_the_clock_goes_back() -> None:
    """The times of entries never decrease, so that a reader can request all entries after a given one."""
    now = [START_MS]
    kept = AuditEvents(7, lambda: now[0])
    kept.record("broker_left", "broker 3", "broker 3 left", {}, None)
    now[0] -= 5000
    kept.record("broker_joined", "broker 3", "broker 3 joined", {}, 4)
    first, second = kept
    assert first.key < second.key
    assert key_of(second.entry_id) == second.key == (START_MS, 7, 2)
    assert [entry.number for entry in kept.newest()] == [2, 1]


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of entries, of partitions, and of decisions on each partition are limited."""
    monkeypatch.setattr(decision_log, "PARTITIONS_MAX", 3)
    kept, cause = DecisionLog(), Cause("BrokersChanged", "", 0, 1, None)
    for epoch in range(20):
        kept.add(P0, (cause, None, LeaderAndIsr(1, epoch, (1,), 1)))
    assert [decision.after.leader_epoch for decision in kept.of(P0)] == [19, 18, 17, 16, 15]
    for number in range(1, 5):
        kept.add(TopicPartition("t", number), (cause, None, LeaderAndIsr(1, 0, (1,), 1)))
    assert (len(kept), list(kept.of(P0))) == (3, [])
    full = AuditEvents(1, lambda: 0)
    for _ in range(audit_events.ENTRIES_MAX + 1):
        full.record("broker_left", "", "", {}, None)
    assert next(entry.number for entry in full) == 2


def test_partitions_with_the_same_decisions_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share memory only until their decisions differ, for any number of partitions and decisions."""
    monkeypatch.setattr(decision_log, "SHARED_ROWS_MAX", 5)
    kept, chance = DecisionLog(), Random(1)
    causes = [Cause("BrokersChanged", "", number, 1, None) for number in range(3)]
    states = [LeaderAndIsr(1, epoch, (1,), 1) for epoch in range(3)]
    expected: dict[TopicPartition, list[tuple[Cause, LeaderAndIsr]]] = {}
    for _ in range(2000):
        partition = TopicPartition("t", chance.randrange(10))
        cause, after = chance.choice(causes), chance.choice(states)
        kept.add(partition, (cause, None, after))
        expected.setdefault(partition, []).append((cause, after))
    for partition, decisions in expected.items():
        assert [(each.cause, each.after) for each in kept.of(partition)] == decisions[:-6:-1]


def test_a_rewrite_of_the_same_state_is_not_a_decision() -> None:
    """An unchanged state with a new partition epoch is not recorded."""
    timeline = Timeline(lambda: 0.0)
    remembered = ControllerHistory(1, timeline, lambda: 0)
    state = LeaderAndIsr(1, 4, (1, 2), 1, partition_epoch=3)
    remembered.record_leader_write(P0, state, LeaderAndIsr(1, 4, (1, 2), 1, partition_epoch=4))
    remembered.record_leader_write(P0, state, state)
    assert list(remembered.decisions(P0)) == []


def test_session_losses_are_recorded() -> None:
    """Every broker records its own ZooKeeper disconnections; the first connection is not recorded."""
    remembered = ControllerHistory(4, Timeline(lambda: 0.0), lambda: 0)
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.EXPIRED):
        remembered.session_changed(state)
    remembered.session_changed(SessionState.CONNECTED)
    found = [entry.kind for entry in remembered.audit_events]
    assert found == ["zookeeper_lost", "zookeeper_reconnected", "session_expired", "zookeeper_reconnected"]
    assert {entry.subject for entry in remembered.audit_events} == {"broker 4"}


def test_every_event_has_a_description() -> None:
    """No cause is described by the class name of its event."""
    concrete = [each for each in _subclasses(Event) if each.__name__ not in ("Event", "ControllerRequest")]
    said_by_value = {
        "ShutdownRequested", "CommandRefused", "ReplicasRecovered", "ElectionRequested", "AssignmentChanged",
        "RemovalDue", "ListReassignmentsRequested",
    }  # fmt: skip
    assert {each.__name__ for each in concrete} - said_by_value - set(_BY_NAME) == set()
    assert cause_of(BrokersChanged()) == "the set of live brokers changed"
    assert cause_of(ShutdownRequested(3)) == "broker 3 requested a controlled shutdown"


def test_every_kind_of_entry_is_described() -> None:
    """Every kind that the controller records has a description in ``KINDS``."""
    sources = [path.read_text() for path in sorted(Path(kreplica.controller.__file__).parent.rglob("*.py"))]
    recorded_kinds = {kind for text in sources for kind in re.findall(r"""\brecord(?:_many)?\(\s*"(\w+)\"""", text)}
    listed = {kind for text in sources for kind in re.findall(r"""\("((?:broker|topics|partitions)_[a-z]+)",""", text)}
    assert len(recorded_kinds) >= 15
    assert listed >= {"broker_left", "partitions_added"}
    assert (recorded_kinds | listed) - KINDS.keys() == set()


def _subclasses(root: type) -> list[type]:
    return [each for child in root.__subclasses__() for each in (child, *_subclasses(child))]
