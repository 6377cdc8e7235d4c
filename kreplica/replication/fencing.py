"""Refuses commands that come too late, or from a broker that is not the controller.

Late are commands of a controller that was replaced, those that a later command of the same controller has overtaken,
and those meant for an earlier incarnation of this broker.
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
"""The number of a command of a controller that does not number them."""


class ControlFence:
    """What a broker remembers about those who command it.

    :param broker_epoch: the czxid of this broker's registration; set again when it registers anew.
    """

    def __init__(self, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        self.broker_epoch = broker_epoch
        self.controller_epoch = 0
        self.controller_id: int | None = None
        self._ended_epoch = UNKNOWN_BROKER_EPOCH
        self._command_number = UNNUMBERED
        self._order = DeferredLock()

    def is_known(self, controller_epoch: int) -> bool:
        """True if ZooKeeper need not be read to decide about commands of this controller epoch."""
        return controller_epoch <= self.controller_epoch

    def learn(self, elected: ElectedController) -> None:
        """Take over the controller that ZooKeeper names; commands of earlier ones are refused from now on."""
        if elected.epoch > self.controller_epoch:
            self.controller_epoch = elected.epoch
            self.controller_id = elected.broker_id
            self._command_number = UNNUMBERED

    def check(
        self, controller_id: int, controller_epoch: int, broker_epoch: int, number: int = UNNUMBERED
    ) -> ErrorCode:
        """Return NONE if a command may be obeyed, or the error to answer it with.

        Commands that a controller sent on a connection it has closed since may arrive after those it sent on the next
        one.  Obeying one would bring back a replica that was deleted in between.

        :param controller_epoch: known (``is_known``): the controller of a higher one has to be learnt first, so that no
            client can fence the real controller by naming a high epoch.
        :param broker_epoch: this broker's epoch as the controller knows it (KIP-380).
        :param number: the number of the command, counted by its controller; the same one may come twice.
        """
        refused = self.refusal(controller_epoch, broker_epoch)
        if refused is not ErrorCode.NONE:
            return refused
        if is_impostor(controller_id, controller_epoch, self.controller_id, self.controller_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if is_overtaken(number, self._command_number):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._command_number = max(number, self._command_number)
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        return ErrorCode.NONE

    def refusal(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Why a command is not obeyed, or is not any more though it passed ``check`` when it came; else NONE."""
        oldest = max(self.broker_epoch, self._ended_epoch + 1)
        if is_stale_broker_epoch(broker_epoch, oldest) or self._is_future(broker_epoch):
            return ErrorCode.STALE_BROKER_EPOCH
        if is_stale_controller_epoch(controller_epoch, self.controller_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def _is_future(self, broker_epoch: int) -> bool:
        """True if the epoch belongs to no registration: this broker is registered, with a lower one."""
        return self._ended_epoch < self.broker_epoch < broker_epoch

    def starts_after(self, zxid: int) -> None:
        """Before this process takes commands, and before it knows its own epoch: who registered up to then was another.

        A controller that has not noticed yet that that one is gone would have this one lead with what is left of its
        log.
        """
        self._ended_epoch = zxid

    def session_ended(self) -> None:
        """The registration is gone with its session: what was meant for it is refused, also before there is another.

        Else a command that was on its way would give back a leadership that somebody else may have by now.
        """
        self._ended_epoch = self.broker_epoch

    async def in_order(self, command: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        """Carry a command out after those that came before it.

        Some take several turns of the reactor: else a deletion could come before what makes the partition.
        """
        await self._order.acquire()
        try:
            return await command()
        finally:
            self._order.release()


def is_stale_broker_epoch(asked: int, own: int) -> bool:
    """True if a command is meant for an earlier incarnation of this broker, or does not say for which.

    Every version of the commands that is served carries the epoch.
    """
    return asked < own


def is_stale_controller_epoch(asked: int, known: int) -> bool:
    """Whether a command comes from a controller that was replaced."""
    return asked < known


def is_impostor(controller_id: int, controller_epoch: int, elected_id: int | None, elected_epoch: int) -> bool:
    """True if a command names a controller that was not elected in the epoch that it names."""
    return controller_epoch > elected_epoch or (controller_epoch == elected_epoch and controller_id != elected_id)


def is_overtaken(number: int, latest: int) -> bool:
    """Whether a command comes after one that its controller sent later."""
    return number != UNNUMBERED and number < latest


def is_current_epoch(leader_epoch: int, known_epoch: int) -> bool:
    """Whether a command about a partition is not of a leader epoch that is over."""
    return leader_epoch >= known_epoch


def is_new_epoch(leader_epoch: int, known_epoch: int) -> bool:
    """Whether a command begins another leader epoch: only then a follower starts anew, and a leader knows nobody."""
    return leader_epoch > known_epoch


def is_of_leader_epoch(asked: int, own: int) -> bool:
    """Whether who asks is in the leader epoch in which this broker leads or follows (KIP-320)."""
    return asked == own
