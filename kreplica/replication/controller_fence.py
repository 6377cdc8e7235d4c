"""Rejects stale commands and commands from a broker that is not the controller.

A command is stale if its controller was replaced, if the same controller has already sent a later command, or if it
was meant for an earlier registration of this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from kreplica.errors import ErrorCode
from kreplica.model import ElectedController

T = TypeVar("T")

UNKNOWN_BROKER_EPOCH = -1
UNNUMBERED = -1
"""Number of a command whose controller does not number its commands."""


class ControlFence:
    """Decides which commands of controllers a broker accepts.

    :param broker_epoch: czxid of this broker's registration; updated when it registers again.
    """

    def __init__(self, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        self.broker_epoch = broker_epoch
        self.controller_epoch = 0
        self.controller_id: int | None = None
        self._ended_epoch = UNKNOWN_BROKER_EPOCH
        self._command_number = UNNUMBERED
        self._order = DeferredLock()

    def is_known(self, controller_epoch: int) -> bool:
        """True if commands of this controller epoch can be checked without reading ZooKeeper."""
        return controller_epoch <= self.controller_epoch

    def learn(self, elected: ElectedController) -> None:
        """Store the controller read from ZooKeeper; commands of earlier controllers are rejected from now on."""
        if elected.epoch > self.controller_epoch:
            self.controller_epoch = elected.epoch
            self.controller_id = elected.broker_id
            self._command_number = UNNUMBERED

    def check(
        self, controller_id: int, controller_epoch: int, broker_epoch: int, number: int = UNNUMBERED
    ) -> ErrorCode:
        """Return NONE if a command may be executed, otherwise the error code for the response.

        A command from a connection that the controller has closed may arrive after commands from its next connection.
        Executing it could restore a replica that was deleted in between.

        :param controller_epoch: an epoch for which ``is_known`` is true. A higher epoch is first looked up in
            ZooKeeper, so that a client cannot fence the real controller by sending a high epoch.
        :param broker_epoch: this broker's epoch as known to the controller (KIP-380).
        :param number: sequence number assigned by the controller; a repeated number is accepted.
        """
        error = self.rejection(controller_epoch, broker_epoch)
        if error is not ErrorCode.NONE:
            return error
        if is_impostor(controller_id, controller_epoch, self.controller_id, self.controller_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if is_overtaken(number, self._command_number):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._command_number = max(number, self._command_number)
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        return ErrorCode.NONE

    def rejection(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Return the error if a command must not be executed now, otherwise NONE.

        Called again after ``check`` for a command that was queued.
        """
        oldest = max(self.broker_epoch, self._ended_epoch + 1)
        if is_stale_broker_epoch(broker_epoch, oldest) or self._is_future(broker_epoch):
            return ErrorCode.STALE_BROKER_EPOCH
        if is_stale_controller_epoch(controller_epoch, self.controller_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def _is_future(self, broker_epoch: int) -> bool:
        """True if this broker is registered with a lower epoch, so no registration has the given one."""
        return self._ended_epoch < self.broker_epoch < broker_epoch

    def reject_registrations_up_to(self, zxid: int) -> None:
        """Reject commands for registrations created up to this transaction ID.

        Called before this process accepts commands. A controller that has not yet noticed the end of the previous
        process could otherwise make this process the leader of a log that has lost its last records.
        """
        self._ended_epoch = zxid

    def session_ended(self) -> None:
        """Reject all commands until the broker registers again.

        A delayed command could otherwise restore a leadership that another broker has since taken over.
        """
        self._ended_epoch = self.broker_epoch

    async def in_order(self, command: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        """Run commands one at a time, in order of arrival.

        A command may take several reactor iterations; without the lock a deletion could overtake the creation of its
        partition.
        """
        await self._order.acquire()
        try:
            return await command()
        finally:
            self._order.release()


def is_stale_broker_epoch(received: int, own: int) -> bool:
    """True if a command is meant for an earlier registration of this broker, or names no broker epoch.

    Every supported version of the commands carries the broker epoch.
    """
    return received < own


def is_stale_controller_epoch(received: int, known: int) -> bool:
    """True if the controller that sent the command was replaced."""
    return received < known


def is_impostor(controller_id: int, controller_epoch: int, elected_id: int | None, elected_epoch: int) -> bool:
    """True if the controller that a command names was not elected in the controller epoch of the command."""
    return controller_epoch > elected_epoch or (controller_epoch == elected_epoch and controller_id != elected_id)


def is_overtaken(number: int, latest: int) -> bool:
    """True if a later command of the same controller was already received."""
    return number != UNNUMBERED and number < latest


def is_current_epoch(leader_epoch: int, known_epoch: int) -> bool:
    """True if the command's leader epoch is the current one or a later one."""
    return leader_epoch >= known_epoch


def is_new_epoch(leader_epoch: int, known_epoch: int) -> bool:
    """True if a command starts a new leader epoch, which restarts fetchers and resets a leader's follower state."""
    return leader_epoch > known_epoch


def is_of_leader_epoch(requested: int, own: int) -> bool:
    """True if the request names the leader epoch of this replica (KIP-320)."""
    return requested == own
