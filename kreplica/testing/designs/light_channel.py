"""The controller's channel to a light broker: one command in flight, with real bodies, on virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.controller.effects.broker_channels import ResponseCallback
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.effects.command_responses import CommandResponse
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.testing.designs.counts import Counts
from kreplica.testing.simulator.reactor import SimulatedReactor
from kreplica.testing.simulator.scheduler import Process, Scheduler
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA

REQUEST_HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len("controller-1") + 1
RESPONSE_BYTES = 4 + 4 + 2 + 3
"""A response without errors."""


class Receiver(Protocol):
    """A broker's end of the channel."""

    @property
    def process(self) -> Process: ...

    def handle_command(self, command: Command, body: bytes) -> None: ...


class LightNetwork:
    """Delivers commands.

    :param receivers: running brokers by ID.
    """

    def __init__(
        self, scheduler: Scheduler, rtt_s: float, counts: Counts, receivers: Mapping[int, Receiver]
    ) -> None:
        self.scheduler = scheduler
        self.half_s = rtt_s / 2
        self.counts = counts
        self.receivers = receivers


class LightChannel:
    """Replaces ``BrokerChannel``; a command to a dead broker gets no response."""

    def __init__(
        self,
        network: LightNetwork,
        process: Process,
        reactor: SimulatedReactor,
        registration: BrokerRegistration,
        endpoint: Endpoint,
        *,
        answered: ResponseCallback,
        sent: Callable[[Command, dict[str, Any]], None],
        **_: object,
    ) -> None:
        self._network = network
        self._process = process
        self._reactor = reactor
        self._broker_id = registration.broker_id
        self._receiver = network.receivers.get(registration.broker_id)
        self._on_response = answered
        self._on_sent = sent
        self._waiting: deque[Command] = deque()
        self._closed = False

    def send(self, command: Command) -> None:
        self._waiting.append(command)
        if len(self._waiting) == 1:
            self._send_next()

    def _send_next(self) -> None:
        command = self._waiting[0]
        Deferred.fromCoroutine(command.build_body(self._reactor)).addCallback(self._transmit, command)

    def _transmit(self, body: dict[str, Any], command: Command) -> None:
        network = self._network
        self._on_sent(command, body)
        built = command.api.request.build(command.version, body)
        network.counts.rpcs += 1
        network.counts.rpc_bytes += REQUEST_HEADER_BYTES + len(built) + RESPONSE_BYTES
        receiver = self._receiver
        if receiver is not None and command.api in (LEADER_AND_ISR, STOP_REPLICA):
            network.scheduler.post(receiver.process, network.half_s, receiver.handle_command, command, built)
        if receiver is not None:
            network.scheduler.post(receiver.process, network.half_s, self._respond, command)

    def _respond(self, command: Command) -> None:
        self._network.scheduler.post(self._process, self._network.half_s, self._response, command)

    def _response(self, command: Command) -> None:
        if self._closed:
            return
        self._waiting.popleft()
        if self._waiting:
            self._send_next()
        self._on_response(self._broker_id, command, CommandResponse())

    async def close(self) -> None:
        self._closed = True
        self._waiting.clear()
