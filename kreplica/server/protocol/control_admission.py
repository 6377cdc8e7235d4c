"""Admits only commands from the elected controller; an unknown controller epoch is looked up in ZooKeeper."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster.znodes import ZnodeError
from kreplica.errors import ErrorCode
from kreplica.model import ElectedController
from kreplica.replication import ControlFence
from kreplica.replication.controller_fence import UNNUMBERED
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.server.protocol.request import Request
from kreplica.zookeeper import ZooKeeperError

log = Logger()

RETRY_SECONDS = 0.25
"""Delay before ZooKeeper is read again after an error."""

UNCONFIRMED_MAX = 256
"""Maximum number of commands that wait for ZooKeeper, so that forged commands cannot exhaust memory."""

OnDecision = Callable[[ErrorCode], None]


class _Command(NamedTuple):
    request: Request
    on_decision: OnDecision

    @property
    def controller_epoch(self) -> int:
        epoch: int = self.request.body["controller_epoch"]
        return epoch


class ControlAdmission:
    """Checks commands for the handlers of LeaderAndIsr, StopReplica and UpdateMetadata.

    A command from the known controller is admitted or rejected at once.  A command with a higher epoch waits until
    ``/controller`` and ``/controller_epoch`` have been read.  Waiting commands are processed in order of arrival.

    :param read_elected: reads the elected controller, as of the call or later (``read_elected_controller``).
    """

    def __init__(
        self, reactor: Reactor, fence: ControlFence, read_elected: Callable[[], Awaitable[ElectedController]]
    ) -> None:
        self._reactor = reactor
        self._fence = fence
        self._read_elected = read_elected
        self._unconfirmed: deque[_Command] = deque()
        self._confirming: Deferred[None] | None = None
        self._stopped = False

    def admit(self, request: Request, on_decision: OnDecision) -> None:
        """Call ``on_decision`` with NONE if the command is admitted, else with the error for the response.

        It is called before this returns if the controller epoch is known, and never if the connection closes first.
        """
        command = _Command(request, on_decision)
        if self._fence.is_known(command.controller_epoch):
            self._process(command)
        elif self._stopped or len(self._unconfirmed) >= UNCONFIRMED_MAX:
            request.abort("the controller that sent the command currently cannot be verified")
        else:
            self._unconfirmed.append(command)
            if self._confirming is None:
                self._confirming = confirming = Deferred.fromCoroutine(self._confirm())
                confirming.addErrback(self._failed)
                confirming.addBoth(self._on_end)  # at once if the session has expired

    def stop(self) -> None:
        """Stop verifying commands; waiting commands are abandoned with their connections."""
        self._stopped = True
        self._unconfirmed.clear()
        if self._confirming is not None:
            self._confirming.cancel()

    async def _confirm(self) -> None:
        try:
            while self._unconfirmed:
                count = len(self._unconfirmed)
                elected = await self._elected()
                if elected is not None:
                    self._fence.learn(elected)
                    self._process_first(count)
        except CancelledError:
            pass  # cancelled by ``stop``

    def _on_end(self, _: None) -> None:
        self._confirming = None

    async def _elected(self) -> ElectedController | None:
        try:
            return await self._read_elected()
        except (ZooKeeperError, ZnodeError) as error:
            # If the session has ended, commands for its registration are rejected.
            log.warn("cannot read the elected controller from ZooKeeper: {error}", error=str(error))
            self._reject_invalid()
            if self._unconfirmed:
                await pause(self._reactor, RETRY_SECONDS)
            return None

    def _reject_invalid(self) -> None:
        """Reject the waiting commands that are invalid whichever controller is elected."""
        waiting = [each for each in self._unconfirmed if each.request.is_waiting]
        self._unconfirmed.clear()
        for command in waiting:
            error = self._fence.rejection(command.controller_epoch, command.request.body["broker_epoch"])
            if error is ErrorCode.NONE:
                self._unconfirmed.append(command)
            else:
                command.on_decision(error)

    def _process_first(self, count: int) -> None:
        """Admit or reject the first ``count`` commands, and the following ones whose controller epoch is now known."""
        waiting = self._unconfirmed
        while waiting and (count > 0 or self._fence.is_known(waiting[0].controller_epoch)):
            count -= 1
            command = waiting.popleft()
            if command.request.is_waiting:
                try:
                    self._process(command)
                except Exception:
                    log.failure("{request!r} failed", request=command.request)
                    command.request.abort(f"{command.request.api.name} failed")

    def _process(self, command: _Command) -> None:
        request, fence = command.request, self._fence
        body = request.body
        number = body.get("command_number", UNNUMBERED)
        error = fence.check(body["controller_id"], body["controller_epoch"], body["broker_epoch"], number)
        if error is ErrorCode.NONE:
            request.connection.mark_control()
        elif error is ErrorCode.STALE_CONTROLLER_EPOCH:
            log.info(
                "{api} from {peer} rejected: it names controller {controller} in epoch {epoch}, but the controller is "
                "{elected} in epoch {elected_epoch}",
                api=request.api.name,
                peer=request.connection.peer,
                controller=body["controller_id"],
                epoch=body["controller_epoch"],
                elected=fence.controller_id,
                elected_epoch=fence.controller_epoch,
            )
        command.on_decision(error)

    def _failed(self, failure: Failure) -> None:
        log.failure("confirming the controller failed", failure)
