"""Controller requests with an unknown controller epoch wait until the controller has been read from ZooKeeper."""

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
from kreplica.zookeeper import ConnectionLoss, SessionExpired

BROKER_EPOCH = 10


class Command:
    """A request that records its admission decision."""

    api = SimpleNamespace(name="UpdateMetadata")

    def __init__(self, epoch: int, controller_id: int, broker_epoch: int) -> None:
        self.body = {"controller_id": controller_id, "controller_epoch": epoch, "broker_epoch": broker_epoch}
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
        self.read_error: Exception | None = None
        self.decided: list[tuple[Command, ErrorCode]] = []
        clock: Any = self.clock
        self.admission = ControlAdmission(clock, self.fence, self._read)

    def _read(self) -> Deferred[ElectedController]:
        self.reads.append(Deferred())
        if self.read_error is not None:
            self.reads[-1].errback(self.read_error)
        return self.reads[-1]

    def send(self, epoch: int, controller_id: int = 1, broker_epoch: int = BROKER_EPOCH) -> Command:
        command = Command(epoch, controller_id, broker_epoch)
        request: Any = command
        self.admission.admit(request, lambda code: self.decided.append((command, code)))
        return command


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_known_controller_epoch_needs_no_read(scene: Scene) -> None:
    first = scene.send(5)
    assert scene.decided == []
    scene.reads[0].callback(ElectedController(1, 5))
    second = scene.send(5)
    assert scene.decided == [(first, ErrorCode.NONE), (second, ErrorCode.NONE)]
    assert len(scene.reads) == 1


def test_requests_keep_their_order_during_the_read(scene: Scene) -> None:
    """Requests that arrive during the read are decided by its result if they name the controller that was found."""
    commands = [scene.send(5) for _ in range(3)]
    scene.reads[0].callback(ElectedController(1, 5))
    assert [command for command, _ in scene.decided] == commands
    assert {code for _, code in scene.decided} == {ErrorCode.NONE}
    assert len(scene.reads) == 1


def test_request_of_a_later_election_needs_another_read(scene: Scene) -> None:
    """The election may have happened after the current read started."""
    scene.send(5)
    next_controller = scene.send(6, 2)
    scene.reads[0].callback(ElectedController(1, 5))
    assert next_controller not in [command for command, _ in scene.decided]
    scene.reads[1].callback(ElectedController(2, 6))
    assert scene.decided[-1] == (next_controller, ErrorCode.NONE)


def test_forged_requests_do_not_delay_the_controller(scene: Scene) -> None:
    """The controller's requests are decided during a read that forged ones triggered; the forged ones are rejected."""
    scene.fence.learn(ElectedController(1, 5))
    forged = scene.send(2**31 - 1)
    real = scene.send(5)
    assert scene.decided == [(real, ErrorCode.NONE)]
    scene.reads[0].callback(ElectedController(1, 5))
    assert scene.decided[1:] == [(forged, ErrorCode.STALE_CONTROLLER_EPOCH)]
    assert scene.fence.controller_epoch == 5


def test_zookeeper_errors_are_retried(scene: Scene) -> None:
    """A legitimate controller is not rejected because of a short ZooKeeper outage."""
    command = scene.send(5)
    scene.reads[0].errback(ConnectionLoss("/controller", "gone"))
    assert scene.decided == []
    scene.clock.advance(RETRY_SECONDS)
    scene.reads[1].callback(ElectedController(1, 5))
    assert scene.decided == [(command, ErrorCode.NONE)]


def test_requests_for_an_ended_registration_do_not_wait(scene: Scene) -> None:
    """After the session has ended, no further read is started for them."""
    command = scene.send(5)
    scene.fence.session_ended()
    scene.reads[0].errback(ConnectionLoss("/controller", "gone"))
    assert scene.decided == [(command, ErrorCode.STALE_BROKER_EPOCH)]
    assert scene.clock.getDelayedCalls() == []


def test_a_read_that_fails_at_once_does_not_stop_later_reads(scene: Scene) -> None:
    """An expired session fails each request immediately; the next session confirms the controller again."""
    scene.fence.session_ended()
    scene.read_error = SessionExpired("/controller_epoch", "the session has expired")
    refused = scene.send(5)
    assert scene.decided == [(refused, ErrorCode.STALE_BROKER_EPOCH)]
    scene.read_error = None
    scene.fence.broker_epoch = BROKER_EPOCH + 1
    command = scene.send(5, broker_epoch=BROKER_EPOCH + 1)
    scene.reads[-1].callback(ElectedController(1, 5))
    assert scene.decided[-1] == (command, ErrorCode.NONE)


def test_requests_of_closed_connections_are_skipped(scene: Scene) -> None:
    command = scene.send(5)
    command.is_waiting = False
    scene.reads[0].callback(ElectedController(1, 5))
    assert scene.decided == []


def test_queue_is_bounded(scene: Scene) -> None:
    """A request above the limit closes its connection; a real controller would retry it."""
    commands = [scene.send(7) for _ in range(UNCONFIRMED_MAX + 1)]
    assert [command.aborted is not None for command in commands] == [False] * UNCONFIRMED_MAX + [True]
    scene.reads[0].callback(ElectedController(1, 5))
    while len(scene.decided) < UNCONFIRMED_MAX:
        scene.reads[-1].callback(ElectedController(1, 5))
    assert {code for _, code in scene.decided} == {ErrorCode.STALE_CONTROLLER_EPOCH}


def test_stop_cancels_the_read(scene: Scene) -> None:
    """Later requests are rejected."""
    scene.send(5)
    scene.admission.stop()
    assert scene.reads[0].called
    assert scene.send(5).aborted is not None
    assert scene.clock.getDelayedCalls() == []
