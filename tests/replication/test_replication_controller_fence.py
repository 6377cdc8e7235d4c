"""Stale commands, and commands from brokers that are not the controller, are rejected."""

from twisted.internet.defer import CancelledError, Deferred

from kreplica.errors import ErrorCode
from kreplica.model import ElectedController
from kreplica.replication.controller_fence import UNKNOWN_BROKER_EPOCH, ControlFence


def elected(controller_id: int = 1, epoch: int = 5, broker_epoch: int = 10) -> ControlFence:
    """Return the fence of a broker that knows the elected controller."""
    fence = ControlFence(broker_epoch)
    fence.learn(ElectedController(controller_id, epoch))
    return fence


def test_replaced_controller_is_refused() -> None:
    """A command with a lower controller epoch than the current one is rejected."""
    fence = elected()
    assert fence.check(1, 5, 10) is ErrorCode.NONE
    fence.learn(ElectedController(2, 6))
    assert fence.check(2, 6, 10) is ErrorCode.NONE
    assert fence.check(1, 5, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.controller_id == 2


def test_controller_that_was_not_elected_is_refused() -> None:
    """Sending a current or higher epoch does not make a broker the controller, and the real one is not fenced."""
    fence = elected()
    assert not fence.is_known(6)
    assert fence.check(1, 2**31 - 1, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.check(2, 5, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.check(1, 5, 10) is ErrorCode.NONE
    assert ControlFence(10).check(1, 0, 10) is ErrorCode.STALE_CONTROLLER_EPOCH


def test_late_read_does_not_restore_an_earlier_controller() -> None:
    """A ZooKeeper read may complete after commands from a later controller have arrived."""
    fence = elected(2, 6)
    fence.learn(ElectedController(1, 5))
    assert (fence.controller_id, fence.controller_epoch) == (2, 6)


def test_command_to_another_incarnation_is_refused() -> None:
    """A registered broker accepts only commands for its current registration."""
    fence = elected()
    assert fence.check(1, 5, 9) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, UNKNOWN_BROKER_EPOCH) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, 11) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, 10) is ErrorCode.NONE


def test_command_before_the_registration() -> None:
    """A process rejects commands for earlier processes of the broker before it knows its own epoch."""
    fence = elected(broker_epoch=UNKNOWN_BROKER_EPOCH)
    fence.reject_registrations_up_to(10)
    assert fence.check(1, 5, 10) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, UNKNOWN_BROKER_EPOCH) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, 12) is ErrorCode.NONE
    fence.broker_epoch = 12
    assert fence.check(1, 5, 11) is ErrorCode.STALE_BROKER_EPOCH


def test_command_to_an_ended_session_is_refused():
    """After its session has ended, a broker rejects commands until it registers again."""
    fence = elected()
    fence.session_ended()
    assert fence.check(1, 5, 10) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, 12) is ErrorCode.NONE
    fence.broker_epoch = 12
    assert fence.check(1, 5, 12) is ErrorCode.NONE
    assert fence.check(1, 5, 11) is ErrorCode.STALE_BROKER_EPOCH


def test_queued_command_is_checked_again():
    """A later controller may have sent commands meanwhile."""
    fence = elected()
    assert fence.check(1, 5, 10) is ErrorCode.NONE
    assert fence.rejection(5, 10) is ErrorCode.NONE
    fence.learn(ElectedController(2, 6))
    assert fence.rejection(5, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    fence.session_ended()
    assert fence.rejection(6, 10) is ErrorCode.STALE_BROKER_EPOCH


def test_commands_run_in_order():
    """A slow command is not overtaken; otherwise a deletion could run before the creation."""
    fence = ControlFence()
    slow: Deferred[None] = Deferred()
    story: list[str] = []

    async def make() -> None:
        await slow
        story.append("made")

    async def delete() -> None:
        story.append("deleted")

    Deferred.fromCoroutine(fence.in_order(make))
    given_up = Deferred.fromCoroutine(fence.in_order(delete))
    last = Deferred.fromCoroutine(fence.in_order(delete))
    given_up.addErrback(lambda failure: failure.trap(CancelledError))
    given_up.cancel()
    assert story == []
    slow.callback(None)
    assert story == ["made", "deleted"]
    assert last.called


def test_superseded_command_is_refused():
    """Commands from a closed connection are stale once later ones have arrived; a repeated command is accepted."""
    fence = elected()
    assert fence.check(1, 5, 10, 7) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 7) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 9) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 7) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.check(1, 5, 10) is ErrorCode.NONE, "a controller without command numbers"
    assert fence.check(1, 5, 10, 8) is ErrorCode.STALE_CONTROLLER_EPOCH


def test_each_controller_has_its_own_numbers():
    fence = elected()
    assert fence.check(1, 5, 10, 900) is ErrorCode.NONE
    fence.learn(ElectedController(2, 6))
    assert fence.check(2, 6, 10, 1) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 901) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.check(2, 6, 10, 2) is ErrorCode.NONE
