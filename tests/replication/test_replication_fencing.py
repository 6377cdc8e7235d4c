"""Commands of the past are refused."""

from twisted.internet.defer import CancelledError, Deferred

from kreplica.errors import ErrorCode
from kreplica.replication.fencing import ControlFence


def test_replaced_controller_is_refused():
    """A controller with a lower epoch than one that was heard already has been replaced."""
    fence = ControlFence(broker_epoch=10)
    assert fence.check(1, 5, 10) is ErrorCode.NONE
    assert fence.check(2, 6, 10) is ErrorCode.NONE
    assert fence.check(1, 5, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.controller_id == 2


def test_command_to_an_earlier_incarnation_is_refused():
    """A broker that restarted does not obey what was meant for its earlier self; unknown and later epochs pass."""
    fence = ControlFence(broker_epoch=10)
    assert fence.check(1, 5, 9) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.controller_epoch == 0
    assert fence.check(1, 5, -1) is ErrorCode.NONE
    assert fence.check(1, 5, 11) is ErrorCode.NONE


def test_command_before_the_broker_has_registered():
    """A process that does not know its epoch yet knows which epochs are older: its predecessors'."""
    fence = ControlFence()
    fence.starts_after(10)
    assert fence.check(1, 5, 10) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, 12) is ErrorCode.NONE
    assert fence.check(1, 5, -1) is ErrorCode.NONE
    fence.broker_epoch = 12
    assert fence.check(1, 5, 11) is ErrorCode.STALE_BROKER_EPOCH


def test_command_to_a_session_that_has_ended_is_refused():
    """Also before the broker has registered anew: others may lead by now what the command would have it lead."""
    fence = ControlFence(broker_epoch=10)
    fence.session_ended()
    assert fence.check(1, 5, 10) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(1, 5, 12) is ErrorCode.NONE
    fence.broker_epoch = 12
    assert fence.check(1, 5, 12) is ErrorCode.NONE
    assert fence.check(1, 5, 11) is ErrorCode.STALE_BROKER_EPOCH


def test_command_that_waits_may_be_overtaken():
    """It is looked at again when its turn comes."""
    fence = ControlFence(broker_epoch=10)
    assert fence.check(1, 5, 10) is ErrorCode.NONE
    assert fence.refusal(5, 10) is ErrorCode.NONE
    fence.check(2, 6, 10)
    assert fence.refusal(5, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    fence.session_ended()
    assert fence.refusal(6, 10) is ErrorCode.STALE_BROKER_EPOCH


def test_commands_are_carried_out_in_the_order_in_which_they_came():
    """One that takes a while is not overtaken: else a partition could be deleted first, and made after that."""
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


def test_a_command_that_was_overtaken_is_refused():
    """On a connection that the controller gave up: what it said since counts; the same command twice is no harm."""
    fence = ControlFence(broker_epoch=10)
    assert fence.check(1, 5, 10, 7) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 7) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 9) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 7) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.check(1, 5, 10) is ErrorCode.NONE, "a controller that does not number its commands"
    assert fence.check(1, 5, 10, 8) is ErrorCode.STALE_CONTROLLER_EPOCH


def test_each_controller_counts_for_itself():
    fence = ControlFence(broker_epoch=10)
    assert fence.check(1, 5, 10, 900) is ErrorCode.NONE
    assert fence.check(2, 6, 10, 1) is ErrorCode.NONE
    assert fence.check(1, 5, 10, 901) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.check(2, 6, 10, 2) is ErrorCode.NONE
