"""Brokers that die, come back, bounce and change, as the controller and the other brokers see it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import BrokersChanged
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
    made.forget_told()
    return made


def states(scene: ControllerScene) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """(leader, in-sync set, eligible) of each partition."""
    found = [scene.state("t", number) for number in ROUND]
    return [(state.leader, state.isr, state.eligible_leader_replicas) for state in found]


def test_a_dead_broker_is_missed_once_and_everything_follows_in_one_step(scene: ControllerScene) -> None:
    """Others lead what it led, it has left every in-sync set, and each broker got one command of each kind."""
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3), ()), (3, (3, 2), ())]
    assert {scene.state("t", number).leader_epoch for number in ROUND} == {1}
    for broker in (2, 3):
        told = scene.brokers[broker].told
        assert [command.name for command in told] == ["LeaderAndIsr", "UpdateMetadata"]
        assert set(told[0].partitions) == set(told[1].partitions) == {P0, P1, P2}
        assert told[0].partitions[P0]["leader"] == 2
        assert [row["id"] for row in told[1].body["live_brokers"]] == [2, 3]
        assert told[1].partitions[P2]["offline_replicas"] == [1]


def test_a_failure_costs_four_round_trips(scene: ControllerScene) -> None:
    """The list of brokers, their registrations, and one sequence of writes, however many partitions there are."""
    scene.make_topic("many", dict.fromkeys(range(300), (1, 2, 3)))
    scene.brokers[1].kill()
    scene.await_expiry()
    figures = scene.controller.queue.last_event
    assert figures is not None
    assert isinstance(figures.event, BrokersChanged)
    assert figures.cost.zookeeper_round_trips <= 4
    assert figures.cost.commands == 4


def test_nobody_is_left(scene: ControllerScene) -> None:
    """Without a live replica a partition has no leader, and who is needed stays in its in-sync set; back, it leads."""
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


def test_a_broker_that_joins_is_told_everything(scene: ControllerScene) -> None:
    """First the metadata, with where the others are, then its roles; the others hear only that it lives."""
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.forget_told()
    scene.run(scene.brokers[1].start())
    scene.settle()
    metadata, roles = scene.brokers[1].told
    assert (metadata.name, roles.name) == ("UpdateMetadata", "LeaderAndIsr")
    assert len(metadata.body["live_brokers"]) == 3
    assert set(metadata.partitions) == set(roles.partitions) == {P0, P1, P2}
    assert roles.body["broker_epoch"] == scene.brokers[1].epoch
    for broker in (2, 3):
        (told,) = scene.brokers[broker].told
        assert (told.name, told.partitions) == ("UpdateMetadata", {})
        assert len(told.body["live_brokers"]) == 3


def test_a_whole_broker_that_bounced_keeps_its_places(scene: ControllerScene) -> None:
    """Faster than anybody could notice: others lead in a new epoch, in-sync sets stay (KIP-380)."""
    first = scene.brokers[1].epoch
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start(intact_since=first))
    assert states(scene) == [(2, (1, 2, 3), ()), (2, (2, 3, 1), ()), (3, (3, 1, 2), ())]
    assert [scene.state("t", number).leader_epoch for number in ROUND] == [1, 0, 0]
    roles = scene.brokers[1].told_of("LeaderAndIsr")
    assert [set(command.partitions) for command in roles] == [{P0, P1, P2}]


def test_an_unclean_broker_that_bounced_leaves_before_it_hears_of_any_partition(scene: ControllerScene) -> None:
    """It may miss the end of its logs, so it is neither in sync nor eligible when it is told its roles (KIP-966)."""
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3), ()), (3, (3, 2), ())]
    (roles,) = scene.brokers[1].told_of("LeaderAndIsr")
    assert all(1 not in row["isr"] and 1 not in row["eligible_leader_replicas"] for row in roles.partitions.values())


def test_a_leader_cannot_take_in_what_bounced_behind_its_back(scene: ControllerScene) -> None:
    """An in-sync set that it proposes from before the bounce is refused, because the state was written since."""
    scene.run(scene.brokers[2].write_isr(P1, (2, 3)))
    scene.settle()
    version = scene.state("t", 1).partition_epoch
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
    after = scene.state("t", 1)
    assert after.partition_epoch == version + 1
    assert (after.leader, after.leader_epoch, after.isr) == (2, 0, (2, 3))


def test_what_a_leader_wrote_in_between_is_decided_anew(scene: ControllerScene) -> None:
    """The controller's first write is refused; nothing is left undecided."""
    scene.run(scene.brokers[2].write_isr(P1, (2, 1), notify=False))
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene)[1] == (2, (2,), (1,))


def test_where_a_broker_is_reached_may_change(scene: ControllerScene) -> None:
    """Its registration has other data in the same session: it is reached there, and told everything anew, since nobody
    knows what waited for it; all others are told where it is, and no leader moves."""
    scene.run(scene.brokers[2].move(9999))
    scene.settle()
    assert [told.name for told in scene.brokers[2].told] == ["UpdateMetadata", "LeaderAndIsr"]
    for broker in scene.brokers.values():
        told = broker.told[0]
        assert (told.name, bool(told.partitions)) == ("UpdateMetadata", broker is scene.brokers[2])
        assert told.body["live_brokers"][1]["endpoints"][0]["port"] == 9999
    assert [scene.state("t", number).leader_epoch for number in ROUND] == [0, 0, 0]


def test_a_failed_directory_takes_its_replicas_offline(scene: ControllerScene) -> None:
    """Others lead, the rest of the broker's replicas stay, and everybody is told which replicas are gone."""
    scene.brokers[1].errors = {P0: ErrorCode.KAFKA_STORAGE_ERROR}
    parent = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}"
    scene.run(scene.brokers[1].client.create(parent, documents.encode_log_dir_event(1), sequence=True))
    scene.settle()
    assert states(scene) == [(2, (2, 3), ()), (2, (2, 3, 1), ()), (3, (3, 1, 2), ())]
    assert scene.brokers[3].told_of("UpdateMetadata")[-1].partitions[P0]["offline_replicas"] == [1]
    assert scene.run(scene.zookeeper.get_children(znodes.LOG_DIR_EVENT_NOTIFICATION)) == []
    # The disk has room again: it answers so when it is asked after a while.
    scene.brokers[1].errors = {}
    scene.settle(31)
    assert scene.context.offline_replicas(P0) == ()
    with scene.unnoticed():
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
    assert len(scene.brokers[1].told_of("LeaderAndIsr")[0].partitions) == 3


def test_in_sync_sets_that_leaders_write_are_published(scene: ControllerScene) -> None:
    """All brokers get the metadata, nobody gets a command to lead or follow, and the notifications go."""
    scene.run(scene.brokers[2].write_isr(P1, (2, 3)))
    scene.run(scene.brokers[3].write_isr(P2, (3,)))
    scene.settle()
    for broker in scene.brokers.values():
        assert {command.name for command in broker.told} == {"UpdateMetadata"}
        told = {p: row["isr"] for command in broker.told for p, row in command.partitions.items()}
        assert told == {P1: [2, 3], P2: [3]}
    assert scene.context.leadership[P1].isr == (2, 3)
    assert scene.run(scene.zookeeper.get_children(znodes.ISR_CHANGE_NOTIFICATION)) == []


def test_a_leader_that_took_in_a_dead_replica_is_corrected(scene: ControllerScene) -> None:
    """It may not have heard yet that the other died: the in-sync set is repaired as soon as it is told of."""
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.run(scene.brokers[2].write_isr(P1, (2, 3, 1)))
    scene.settle()
    assert states(scene)[1] == (2, (2, 3), ())


def test_unclean_leaders_come_when_the_settings_allow_it(scene: ControllerScene) -> None:
    """Not before; and then nobody is eligible beside them."""
    scene.run(scene.brokers[1].write_isr(P0, (1,)))
    scene.settle()
    scene.brokers[1].kill()
    scene.await_expiry()
    assert states(scene)[0] == (NO_LEADER, (1,), ())
    scripted = scene.controllers[101]
    office = scripted.controller._office
    assert office is not None
    office.config = replace(office.config, unclean_allowed=lambda _: True)
    scripted.controller.topic_settings_changed()
    scene.settle()
    assert states(scene)[0] == (2, (2,), ())


# --- the controller itself --------------------------------------------------------------------------------------------


def test_the_next_controller_repairs_what_happened_without_one() -> None:
    """A broker died and another bounced while nobody looked: one sequence of writes, then one command of each kind."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    scene.controllers[101].kill()
    first = scene.brokers[2].epoch
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start(intact_since=first))
    scene.brokers[1].kill()
    scene.await_expiry()
    scene.until(lambda: scene.controllers[102].in_office)
    scene.settle(3)
    assert states(scene) == [(3, (2, 3), ()), (3, (2, 3), ()), (3, (3, 2), ())]
    assert scene.context.controller_epoch == 2
    names = [command.name for command in scene.brokers[3].told if command.body["controller_epoch"] == 2]
    assert names == ["UpdateMetadata", "LeaderAndIsr", "UpdateMetadata"]


@pytest.mark.parametrize("noted", [None, b"", b"nonsense"])
def test_the_next_controller_finds_out_who_came_back_unclean(noted: bytes | None) -> None:
    """From the epochs that the last one noted; without them, from the time of the states that name a broker."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", ROUND)
    scene.controllers[101].kill()
    if noted is not None:
        scene.run(scene.zookeeper.set_data(znodes.BROKER_EPOCHS, noted))
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start())
    scene.until(lambda: scene.controllers[102].in_office)
    scene.settle(3)
    assert states(scene) == [(1, (1, 3), ()), (3, (3, 1), ()), (3, (3, 1), ())]
    data, _ = scene.run(scene.zookeeper.get_data(znodes.BROKER_EPOCHS))
    assert documents.decode_broker_epochs(data) == {number: broker.epoch for number, broker in scene.brokers.items()}


def test_a_loss_that_no_controller_saw_is_not_forgotten_by_the_next_but_one() -> None:
    """A broker lost the end of its log and died again between two controllers; it is judged when it is back for good.

    The states were written since, with it in them, so their time says nothing.
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
        scene.until(lambda: any(controller.in_office for controller in scene.controllers.values()))
        scene.settle(3)
        assert scene.state("t", 0).isr == (2,)
        if number == 102:
            next(c for c in scene.controllers.values() if c.in_office).kill()
    scene.run(scene.brokers[2].start(intact_since=lossy))
    scene.settle(3)
    assert (scene.state("t", 0).leader, scene.state("t", 0).isr) == (NO_LEADER, (1,))
    scene.run(scene.brokers[1].start(intact_since=first))
    scene.settle(3)
    assert scene.state("t", 0).leader == 1


def test_a_broker_that_was_down_all_the_time_is_judged_by_the_states_that_name_it() -> None:
    """Whole, it may lead what it alone holds of; unclean, eligible replicas go before it."""
    scene = ControllerScene(brokers=3, controllers=2)
    scene.start()
    scene.make_topic("t", {0: (1, 2, 3), 1: (2, 1), 2: (3, 2, 1)})
    epochs = {number: broker.epoch for number, broker in scene.brokers.items()}
    for number in (1, 2):
        scene.brokers[number].kill()
        scene.await_expiry()
    scene.controllers[101].kill()
    scene.until(lambda: scene.controllers[102].in_office)
    scene.settle(3)
    assert scene.state("t", 1) == LeaderAndIsr(NO_LEADER, 2, (2,), 1, 2, (1,))
    scene.run(scene.brokers[2].start())
    scene.settle(3)
    assert scene.state("t", 1).isr == (1,), "the eligible one holds all that was committed, so it is waited for"
    scene.run(scene.brokers[1].start(intact_since=epochs[1]))
    scene.settle(3)
    assert (scene.state("t", 1).leader, scene.state("t", 1).isr) == (1, (1,))


def test_a_broker_that_has_heard_of_a_later_controller_makes_this_one_look(scene: ControllerScene) -> None:
    """It is still in office, so it goes on; had another been elected, it would resign."""
    scene.brokers[2].whole_error = ErrorCode.STALE_CONTROLLER_EPOCH
    scene.brokers[1].kill()
    scene.await_expiry()
    assert scene.controllers[101].in_office
    assert states(scene)[0] == (2, (2, 3), ())


def test_an_error_that_nobody_knows() -> None:
    """A broker of a later version may answer one: it stands in the log, and the next commands are sent all the same."""
    scene = ControllerScene(brokers=2)
    scene.start()
    later: Any = 9999
    scene.brokers[1].errors[TopicPartition("t", 0)] = later
    with capturedLogs() as logged:
        scene.make_topic("t", {0: (1, 2)})
        scene.make_topic("u", {0: (1, 2)})
    assert TopicPartition("u", 0) in scene.brokers[1].told_of("LeaderAndIsr")[-1].partitions
    warnings = [formatEvent(event) for event in logged if event["log_level"] >= LogLevel.warn]
    assert len(warnings) == 1
    assert "UNKNOWN_SERVER_ERROR" in warnings[0]


def test_a_term_that_is_taken_up_again_goes_on_counting(scene: ControllerScene) -> None:
    """After a lost connection it has the same epoch: with commands that begin at 1 again it would seem to come late."""
    before = scene.context
    scene.simulation.network.cut("controller-101", "coordinator")
    scene.controller.queue.put(BrokersChanged())
    scene.settle(5.0)
    scene.simulation.network.heal()
    scene.settle(5.0)
    assert scene.context is not before
    assert scene.context.controller_epoch == before.controller_epoch
    for broker in scene.brokers.values():
        told = [told.body["command_number"] for told in broker.told]
        assert told == sorted(set(told))
        assert told[0] > before.commands_count
