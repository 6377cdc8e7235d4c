"""Commands with an unknown controller epoch wait until ZooKeeper has named the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.errors import ErrorCode
from kreplica.model import ElectedController
from kreplica.replication import ControlFence
from kreplica.server.protocol.control_admission import RETRY_SECONDS, UNCONFIRMED_MAX, ControlAdmission
from kreplica.zookeeper import ConnectionLoss

BROKER_EPOCH = 10


class Command:
    """A command that notes what is decided about it."""

    api = SimpleNamespace(name="UpdateMetadata")

    def __init__(self, epoch: int, controller_id: int) -> None:
        self.body = {"controller_id": controller_id, "controller_epoch": epoch, "broker_epoch": BROKER_EPOCH}
        self.connection = SimpleNamespace(mark_control=lambda: None, peer="127.0.0.1:1")
        self.is_waiting = True
        self.aborted: str | None = None

    def abort(self, reason: str) -> None:
        self.aborted = reason


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.fence = ControlFence(BROKER_EPOCH)
        self.reads: list[Deferred[ElectedController]] = []
        self.decided: list[tuple[Command, ErrorCode]] = []
        clock: Any = self.clock
        self.admission = ControlAdmission(clock, self.fence, self._read)

    def _read(self) -> Deferred[ElectedController]:
        self.reads.append(Deferred())
        return self.reads[-1]

    def send(self, epoch: int, controller_id: int = 1) -> Command:
        command = Command(epoch, controller_id)
        request: Any = command
        self.admission.admit(request, lambda code: self.decided.append((command, code)))
        return command


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_known_controller_costs_no_read(scene: Scene) -> None:
    """Once its epoch is known, a controller's commands are decided as they come."""
    first = scene.send(5)
    assert scene.decided == []
    scene.reads[0].callback(ElectedController(1, 5))
    second = scene.send(5)
    assert scene.decided == [(first, ErrorCode.NONE), (second, ErrorCode.NONE)]
    assert len(scene.reads) == 1


def test_commands_keep_their_order_while_the_controller_is_read(scene: Scene) -> None:
    """Those that came after the read began are decided with it too, if they name the controller that it found."""
    commands = [scene.send(5) for _ in range(3)]
    scene.reads[0].callback(ElectedController(1, 5))
    assert [command for command, _ in scene.decided] == commands
    assert {code for _, code in scene.decided} == {ErrorCode.NONE}
    assert len(scene.reads) == 1


def test_a_command_that_comes_during_the_read_is_decided_by_a_later_one(scene: Scene) -> None:
    """The election that it follows from may be later than the read."""
    scene.send(5)
    next_controller = scene.send(6, 2)
    scene.reads[0].callback(ElectedController(1, 5))
    assert next_controller not in [command for command, _ in scene.decided]
    scene.reads[1].callback(ElectedController(2, 6))
    assert scene.decided[-1] == (next_controller, ErrorCode.NONE)


def test_forged_commands_do_not_hold_up_the_controller(scene: Scene) -> None:
    """Its commands are decided while a read for others is under way, and none of those is obeyed."""
    scene.fence.learn(ElectedController(1, 5))
    forged = scene.send(2**31 - 1)
    real = scene.send(5)
    assert scene.decided == [(real, ErrorCode.NONE)]
    scene.reads[0].callback(ElectedController(1, 5))
    assert scene.decided[1:] == [(forged, ErrorCode.STALE_CONTROLLER_EPOCH)]
    assert scene.fence.controller_epoch == 5


def test_an_error_of_zookeeper_is_retried(scene: Scene) -> None:
    """A legitimate controller is not refused because ZooKeeper was away for a moment."""
    command = scene.send(5)
    scene.reads[0].errback(ConnectionLoss("/controller", "gone"))
    assert scene.decided == []
    scene.clock.advance(RETRY_SECONDS)
    scene.reads[1].callback(ElectedController(1, 5))
    assert scene.decided == [(command, ErrorCode.NONE)]


def test_commands_for_a_registration_that_has_ended_do_not_wait(scene: Scene) -> None:
    """When the session ends, nothing more is read for them."""
    command = scene.send(5)
    scene.fence.session_ended()
    scene.reads[0].errback(ConnectionLoss("/controller", "gone"))
    assert scene.decided == [(command, ErrorCode.STALE_BROKER_EPOCH)]
    assert scene.clock.getDelayedCalls() == []


def test_clients_that_went_away_are_skipped(scene: Scene) -> None:
    """Their commands are not obeyed any more."""
    command = scene.send(5)
    command.is_waiting = False
    scene.reads[0].callback(ElectedController(1, 5))
    assert scene.decided == []


def test_the_queue_is_bounded(scene: Scene) -> None:
    """A command beyond the bound closes its connection: a real controller sends it again."""
    commands = [scene.send(7) for _ in range(UNCONFIRMED_MAX + 1)]
    assert [command.aborted is not None for command in commands] == [False] * UNCONFIRMED_MAX + [True]
    scene.reads[0].callback(ElectedController(1, 5))
    while len(scene.decided) < UNCONFIRMED_MAX:
        scene.reads[-1].callback(ElectedController(1, 5))
    assert {code for _, code in scene.decided} == {ErrorCode.STALE_CONTROLLER_EPOCH}


def test_a_stop_leaves_nothing_behind(scene: Scene) -> None:
    """The read is cancelled, and later commands are turned away."""
    scene.send(5)
    scene.admission.stop()
    assert scene.reads[0].called
    assert scene.send(5).aborted is not None
    assert scene.clock.getDelayedCalls() == []
