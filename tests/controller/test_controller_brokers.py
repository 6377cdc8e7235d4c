"""Broker failures, restarts and registration changes, as seen by the controller and the other brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from kreplica.cluster import documents, znodes
from kreplica.controller.effects import resumption
from kreplica.controller.event_types import BrokersChanged
from kreplica.controller.handlers import leaders_first
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, LeaderAndIsr, TopicPartition
from tests.support.controller_scene import ControllerScene

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
ROUND = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


@pytest.fixture
def scene() -> ControllerScene:
    made = ControllerScene(brokers=3)
    made.start()
    made.make_topic("t", ROUND)
    made.clear_received()
    return made


def states(scene: ControllerScene) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Return the (leader, ISR, eligible leader replicas) of each partition."""
    found = [scene.state("t", number) for number in ROUND]
    return [(state.leader, state.isr, state.eligible_leader_replicas) for state in found]


def test_a_broker_failure_is_handled_in_one_step(scene: ControllerScene) -> None:
    """New leaders are elected, the broker leaves every ISR, and each broker receives one command of each kind."""
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3), ()), (3, (3, 2), ())]
    assert {scene.state("t", number).leader_epoch for number in ROUND} == {1}
    for broker in (2, 3):
        received = scene.brokers[broker].received
        assert [command.name for command in received] == ["LeaderAndIsr", "UpdateMetadata"]
        assert set(received[0].partitions) == set(received[1].partitions) == {P0, P1, P2}
        assert received[0].partitions[P0]["leader"] == 2
        assert [row["id"] for row in received[1].body["live_brokers"]] == [2, 3]
        assert received[1].partitions[P2]["offline_replicas"] == [1]


def test_partitions_without_a_leader_come_first(scene: ControllerScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If many other partitions lose a follower, they are handled after those that lose their leader."""
    monkeypatch.setattr(leaders_first, "LEADERS_FIRST_MIN", 2)
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3), ()), (3, (3, 2), ())]
    for broker in (2, 3):
        received = scene.brokers[broker].received
        assert [(command.name, set(command.partitions)) for command in received] == [
            ("LeaderAndIsr", {P0}),
            ("UpdateMetadata", {P0}),
            ("LeaderAndIsr", {P1, P2}),
            ("UpdateMetadata", {P1, P2}),
        ]
        assert [row["id"] for row in received[1].body["live_brokers"]] == [2, 3]


def test_a_new_controller_elects_leaders_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions that lost their leader are handled before the full state is sent."""
    monkeypatch.setattr(leaders_first, "LEADERS_FIRST_MIN", 2)
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    scene.controllers[101].kill()
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.until(lambda: scene.controllers[102].is_active)
    scene.settle(3)
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3), ()), (3, (3, 2), ())]
    received = [each for each in scene.brokers[3].received if each.body["controller_epoch"] == 2]
    assert [(command.name, set(command.partitions)) for command in received] == [
        ("UpdateMetadata", set()),
        ("LeaderAndIsr", {P0}),
        ("UpdateMetadata", {P0}),
        ("LeaderAndIsr", {P0, P1, P2}),
        ("UpdateMetadata", {P0, P1, P2}),
    ]


def test_a_failure_costs_four_round_trips(scene: ControllerScene) -> None:
    """The round trips read the broker list and the registrations and write the states, regardless of the number of
    partitions.
    """
    scene.make_topic("many", dict.fromkeys(range(300), (1, 2, 3)))
    scene.brokers[1].kill()
    scene.await_expiry()
    figures = scene.controller.queue.last_event
    assert figures is not None
    assert isinstance(figures.event, BrokersChanged)
    assert figures.cost.zookeeper_round_trips <= 4
    assert figures.cost.commands == 4


def test_no_live_replica_is_left(scene: ControllerScene) -> None:
    """Without a live replica, a partition has no leader and keeps its last in-sync replica, which leads after it has
    returned.
    """
    for broker in (1, 2, 3):
        scene.brokers[broker].kill()
        scene.await_expiry()
    assert [leader for leader, _, _ in states(scene)] == [NO_LEADER] * 3
    assert [isr for _, isr, _ in states(scene)] == [(3,)] * 3
    scene.run(scene.brokers[2].start(intact_since=0))
    scene.settle()
    assert [leader for leader, _, _ in states(scene)] == [2, 2, 2], "it was eligible: nothing was committed without it"
    scene.run(scene.brokers[3].start(intact_since=0))
    scene.settle()
    assert [leader for leader, _, _ in states(scene)] == [2, 2, 2]


def test_a_joining_broker_receives_the_full_state(scene: ControllerScene) -> None:
    """A new broker receives all metadata first and then its roles; other brokers receive only the live brokers."""
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.clear_received()
    scene.run(scene.brokers[1].start())
    scene.settle()
    metadata, roles = scene.brokers[1].received
    assert (metadata.name, roles.name) == ("UpdateMetadata", "LeaderAndIsr")
    assert len(metadata.body["live_brokers"]) == 3
    assert set(metadata.partitions) == set(roles.partitions) == {P0, P1, P2}
    assert roles.body["broker_epoch"] == scene.brokers[1].epoch
    for broker in (2, 3):
        (received,) = scene.brokers[broker].received
        assert (received.name, received.partitions) == ("UpdateMetadata", {})
        assert len(received.body["live_brokers"]) == 3


def test_a_clean_restart_keeps_the_broker_in_sync(scene: ControllerScene) -> None:
    """After a fast, clean restart, other replicas lead in a new epoch, and the ISRs are unchanged (KIP-380)."""
    first = scene.brokers[1].epoch
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start(intact_since=first))
    assert states(scene) == [(2, (1, 2, 3), ()), (2, (2, 3, 1), ()), (3, (3, 1, 2), ())]
    assert [scene.state("t", number).leader_epoch for number in ROUND] == [1, 0, 0]
    roles = scene.brokers[1].received_of("LeaderAndIsr")
    assert [set(command.partitions) for command in roles] == [{P0, P1, P2}]


def test_an_unclean_restart_removes_the_broker_from_in_sync_sets(scene: ControllerScene) -> None:
    """The broker may lack the end of its logs, so it is neither in sync nor eligible when it receives its roles
    (KIP-966).
    """
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3), ()), (3, (3, 2), ())]
    (roles,) = scene.brokers[1].received_of("LeaderAndIsr")
    assert all(1 not in row["isr"] and 1 not in row["eligible_leader_replicas"] for row in roles.partitions.values())


def test_a_leader_cannot_readd_a_restarted_replica(scene: ControllerScene) -> None:
    """An ISR change that is based on the state before the restart fails, because the state was rewritten."""
    scene.run(scene.brokers[2].write_isr(P1, (2, 3)))
    scene.settle()
    version = scene.state("t", 1).partition_epoch
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
    after = scene.state("t", 1)
    assert after.partition_epoch == version + 1
    assert (after.leader, after.leader_epoch, after.isr) == (2, 0, (2, 3))


def test_a_concurrent_leader_write_repeats_the_decision(scene: ControllerScene) -> None:
    """The controller's first write is rejected, and its second attempt decides on every partition again."""
    scene.run(scene.brokers[2].write_isr(P1, (2, 1), notify=False))
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene)[1] == (2, (2,), (1,))


def test_a_broker_may_change_its_endpoint(scene: ControllerScene) -> None:
    """A new endpoint in the same session gets a new channel with the full state; leaders do not change."""
    scene.run(scene.brokers[2].move(9999))
    scene.settle()
    assert [command.name for command in scene.brokers[2].received] == ["UpdateMetadata", "LeaderAndIsr"]
    for broker in scene.brokers.values():
        received = broker.received[0]
        assert (received.name, bool(received.partitions)) == ("UpdateMetadata", broker is scene.brokers[2])
        assert received.body["live_brokers"][1]["endpoints"][0]["port"] == 9999
    assert [scene.state("t", number).leader_epoch for number in ROUND] == [0, 0, 0]


def test_a_failed_directory_takes_its_replicas_offline(scene: ControllerScene) -> None:
    """Other replicas become leaders, the broker's other replicas stay, and all brokers learn which are offline."""
    scene.brokers[1].errors = {P0: ErrorCode.KAFKA_STORAGE_ERROR}
    parent = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}"
    scene.run(scene.brokers[1].client.create(parent, documents.encode_log_dir_event(1), sequence=True))
    scene.settle()
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3, 1), ()), (3, (3, 1, 2), ())]
    assert scene.brokers[3].received_of("UpdateMetadata")[-1].partitions[P0]["offline_replicas"] == [1]
    assert scene.run(scene.zookeeper.get_children(znodes.LOG_DIR_EVENT_NOTIFICATION)) == []
    # The disk has space again, so the broker reports success at the retry.
    scene.brokers[1].errors = {}
    scene.settle(31)
    assert scene.context.offline_replicas(P0) == ()
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
    assert len(scene.brokers[1].received_of("LeaderAndIsr")[0].partitions) == 3


def test_in_sync_sets_that_leaders_write_are_published(scene: ControllerScene) -> None:
    """All brokers receive the metadata but no LeaderAndIsr, and the notifications are removed."""
    scene.run(scene.brokers[2].write_isr(P1, (2, 3)))
    scene.run(scene.brokers[3].write_isr(P2, (3,)))
    scene.settle()
    for broker in scene.brokers.values():
        assert {command.name for command in broker.received} == {"UpdateMetadata"}
        received = {p: row["isr"] for command in broker.received for p, row in command.partitions.items()}
        assert received == {P1: [2, 3], P2: [3]}
    assert scene.context.leadership[P1].isr == (2, 3)
    assert scene.run(scene.zookeeper.get_children(znodes.ISR_CHANGE_NOTIFICATION)) == []


def test_a_dead_replica_that_a_leader_added_is_removed(scene: ControllerScene) -> None:
    """The ISR is repaired as soon as the notification arrives."""
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.run(scene.brokers[2].write_isr(P1, (2, 3, 1)))
    scene.settle()
    assert states(scene)[1] == (2, (2, 3), ())


def test_unclean_leaders_are_elected_when_the_configuration_allows_it(scene: ControllerScene) -> None:
    """An unclean election waits for the configuration change and leaves no eligible replicas."""
    scene.run(scene.brokers[1].write_isr(P0, (1,)))
    scene.settle()
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene)[0] == (NO_LEADER, (1,), ())
    scripted = scene.controllers[101]
    term = scripted.controller._term
    assert term is not None
    term.config = replace(term.config, unclean_allowed=lambda _: True)
    scripted.controller.topic_settings_changed()
    scene.settle()
    assert states(scene)[0] == (2, (2,), ())


# --- the controller itself --------------------------------------------------------------------------------------------


def test_a_new_controller_repairs_earlier_failures() -> None:
    """A failure and a restart without a controller are repaired by one sequence of writes and one command per kind."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    scene.controllers[101].kill()
    first = scene.brokers[2].epoch
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start(intact_since=first))
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.until(lambda: scene.controllers[102].is_active)
    scene.settle(3)
    assert states(scene) == [(3, (2, 3), ()), (3, (2, 3), ()), (3, (3, 2), ())]
    assert scene.context.controller_epoch == 2
    names = [command.name for command in scene.brokers[3].received if command.body["controller_epoch"] == 2]
    assert names == ["UpdateMetadata", "LeaderAndIsr", "UpdateMetadata"]


@pytest.mark.parametrize("noted", [None, b"", b"nonsense"])
def test_a_new_controller_detects_unclean_restarts(noted: bytes | None) -> None:
    """Broker epochs are taken from the last controller's znode, or else from the zxids of states that name a broker."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    scene.controllers[101].kill()
    if noted is not None:
        scene.run(scene.zookeeper.set_data(znodes.BROKER_EPOCHS, noted))
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start())
    scene.until(lambda: scene.controllers[102].is_active)
    scene.settle(3)
    assert states(scene) == [(1, (1, 3), ()), (3, (3, 1), ()), (3, (3, 1), ())]
    data, _ = scene.run(scene.zookeeper.get_data(znodes.BROKER_EPOCHS))
    assert documents.decode_broker_epochs(data) == {number: broker.epoch for number, broker in scene.brokers.items()}


def test_an_unseen_log_loss_survives_two_failovers() -> None:
    """A broker that lost the end of its log and failed between two controllers is evaluated when it finally returns.

    States that name it were written in the meantime, so their zxids do not prove that its log is complete.
    """
    scene = ControllerScene(brokers=2, controllers=3)
    scene.start()
    scene.make_topic("t", {0: (1, 2)})
    first = scene.brokers[1].epoch
    scene.brokers[1].kill()
    scene.await_expiry()
    assert scene.state("t", 0).eligible_leader_replicas == (1,)
    scene.controllers[101].kill()
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start())
    lossy = scene.brokers[2].epoch
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].end_session())
    for number in (102, 103):
        scene.await_expiry()
        scene.until(lambda: any(controller.is_active for controller in scene.controllers.values()))
        scene.settle(3)
        assert scene.state("t", 0).isr == (2,)
        if number == 102:
            next(c for c in scene.controllers.values() if c.is_active).kill()
    scene.run(scene.brokers[2].start(intact_since=lossy))
    scene.settle(3)
    assert (scene.state("t", 0).leader, scene.state("t", 0).isr) == (NO_LEADER, (1,))
    scene.run(scene.brokers[1].start(intact_since=first))
    scene.settle(3)
    assert scene.state("t", 0).leader == 1


def test_a_returning_broker_is_judged_by_the_states_that_name_it() -> None:
    """A clean broker may lead partitions that only it holds; before an unclean one, eligible replicas are elected."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", {0: (1, 2, 3), 1: (2, 1), 2: (3, 2, 1)})
    epochs = {number: broker.epoch for number, broker in scene.brokers.items()}
    for number in (1, 2):
        scene.brokers[number].kill()
        scene.await_expiry()
    scene.controllers[101].kill()
    scene.until(lambda: scene.controllers[102].is_active)
    scene.settle(3)
    assert scene.state("t", 1) == LeaderAndIsr(NO_LEADER, 2, (2,), 1, 2, (1,))
    scene.run(scene.brokers[2].start())
    scene.settle(3)
    assert scene.state("t", 1).isr == (1,), "the eligible replica holds all committed records, so it is awaited"
    scene.run(scene.brokers[1].start(intact_since=epochs[1]))
    scene.settle(3)
    assert (scene.state("t", 1).leader, scene.state("t", 1).isr) == (1, (1,))


def test_a_stale_controller_epoch_error_triggers_an_election_check(scene: ControllerScene) -> None:
    """The controller stays in its term, because ``/controller`` still names it."""
    scene.brokers[2].whole_error = ErrorCode.STALE_CONTROLLER_EPOCH
    scene.brokers[1].kill()
    scene.await_expiry()
    assert scene.controllers[101].is_active
    assert states(scene)[0] == (2, (2, 3), ())


def test_an_unknown_error_code() -> None:
    """An error code from a later version is logged, and the next commands are sent."""
    scene = ControllerScene(brokers=2)
    scene.start()
    later: Any = 9999
    scene.brokers[1].errors[TopicPartition("t", 0)] = later
    with capturedLogs() as logged:
        scene.make_topic("t", {0: (1, 2)})
        scene.make_topic("u", {0: (1, 2)})
    assert TopicPartition("u", 0) in scene.brokers[1].received_of("LeaderAndIsr")[-1].partitions
    warnings = [formatEvent(event) for event in logged if event["log_level"] >= LogLevel.warn]
    assert len(warnings) == 1
    assert "UNKNOWN_SERVER_ERROR" in warnings[0]


def test_a_resumed_term_continues_the_command_numbers(
    scene: ControllerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A term that restarts because an event failed has the same epoch, so commands numbered from 1 again would look
    outdated to brokers."""
    monkeypatch.setattr(resumption, "LOSSES_MAX", 1)
    before = scene.context
    scene.simulation.network.cut("controller-101", "coordinator")
    scene.controller.queue.put(BrokersChanged())
    scene.settle(5.0)
    scene.simulation.network.heal()
    scene.settle(5.0)
    assert scene.context is not before
    assert scene.context.controller_epoch == before.controller_epoch
    for broker in scene.brokers.values():
        received = [command.body["command_number"] for command in broker.received]
        assert received == sorted(set(received))
        assert received[0] > before.commands_count
