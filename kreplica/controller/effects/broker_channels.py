"""Channels to brokers: send commands in order, one in flight, and retry until the broker responds or is gone."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.connection import Connection, connect
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.effects.command_responses import CommandResponse
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause

log = Logger()

WAITING_COMMANDS_MAX = 1000
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 5.0

ResponseCallback = Callable[[int, Command, CommandResponse], None]


class BrokerChannel:
    """The controller's connection to one incarnation of one broker; a restarted broker gets a new channel.

    A command is sent again after a lost connection or a timeout; brokers recognise commands they have already executed.

    :param answered: called with (broker id, command, response).
    :param stopping: returns True if the broker is shutting down, so that failures are expected.
    :param sent: called with a command and its body each time it is sent.
    :param late: called once for a command that gets no response within ``timeout_s``; the channel keeps retrying.
    :param overflowed: called once if too many commands are waiting.  The channel drops them; the controller closes it
        and sends the full state on a new one.
    :param endpoint_maker: creates the endpoint of the connection.
    """

    def __init__(
        self,
        reactor: Reactor,
        rng: random.Random,
        registration: BrokerRegistration,
        endpoint: Endpoint,
        *,
        client_id: str,
        timeout_s: float,
        answered: ResponseCallback,
        overflowed: Callable[[int], None],
        stopping: Callable[[], bool],
        sent: Callable[[Command, dict[str, Any]], None],
        late: Callable[[int, Command], None],
        endpoint_maker: EndpointMaker = tcp_endpoint,
    ) -> None:
        self._endpoint_maker = endpoint_maker
        self._reactor = reactor
        self._random = rng
        self.registration = registration
        self._endpoint = endpoint
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._answered = answered
        self._overflowed = overflowed
        self._stopping = stopping
        self._sent = sent
        self._late = late
        self._waiting: deque[Command] = deque()
        self._connection: Connection | None = None
        self._closed = False
        self._running: Deferred[None] | None = None

    @property
    def idle(self) -> bool:
        return not self._waiting

    def send(self, command: Command) -> None:
        """Queue a command."""
        if self._closed:
            return
        if len(self._waiting) >= WAITING_COMMANDS_MAX:
            log.error(
                "broker {broker} has not responded to {count} controller commands; it will be sent the full state",
                broker=self.registration.broker_id,
                count=len(self._waiting),
            )
            self._waiting.clear()
            self._overflowed(self.registration.broker_id)
            return
        self._waiting.append(command)
        if self._running is None:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(lambda failure: log.failure("controller channel", failure))
            if self.idle:
                self._running = None

    async def close(self) -> None:
        """Drop the waiting commands and close the connection."""
        self._closed = True
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _run(self) -> None:
        try:
            while self._waiting:
                command = self._waiting[0]
                response = await self._send_until_answered(command)
                if self._waiting and self._waiting[0] is command:
                    self._waiting.popleft()
                    self._handle_response(command, response)
        except CancelledError:
            if not self._closed:
                raise
        finally:
            self._running = None

    def _handle_response(self, command: Command, response: dict[str, Any]) -> None:
        try:
            self._answered(self.registration.broker_id, command, CommandResponse.of(response))
        except Exception:
            # An invalid response must not block the following commands.
            log.failure(
                "controller: invalid response from broker {broker} to {api}",
                broker=self.registration.broker_id,
                api=command.api.name,
            )

    async def _send_until_answered(self, command: Command) -> dict[str, Any]:
        delay = RETRY_SECONDS_MIN
        late_at: float | None = self._reactor.seconds() + self._timeout_s
        while True:
            try:
                return await self._exchange(command)
            except CancelledError:
                raise
            except Exception as error:
                # Any error is retried, so that no command is lost.
                log_failure = log.debug if self._stopping() else log.warn
                log_failure(
                    "controller: {api} to broker {broker} at {endpoint} failed, retrying: {error}",
                    api=command.api.name,
                    broker=self.registration.broker_id,
                    endpoint=str(self._endpoint),
                    error=str(error),
                )
            if late_at is not None and self._reactor.seconds() >= late_at:
                late_at = None
                self._late(self.registration.broker_id, command)
            await pause(self._reactor, delay * self._random.uniform(0.5, 1.0))
            delay = min(delay * 2, RETRY_SECONDS_MAX)

    async def _exchange(self, command: Command) -> dict[str, Any]:
        body = await command.build_body(self._reactor)
        if self._connection is None or self._connection.closed:
            self._connection = await connect(
                self._reactor,
                self._endpoint.host,
                self._endpoint.port,
                client_id=self._client_id,
                connect_timeout_s=self._timeout_s,
                endpoint=self._endpoint_maker,
            )
        self._sent(command, body)
        response = self._connection.request(command.api, command.version, body, timeout_s=self._timeout_s)
        self._prepare_next()
        return await response

    def _prepare_next(self) -> None:
        """Encode the next command while the broker executes the current one; the encoded parts are cached."""
        if len(self._waiting) > 1:
            prepared = Deferred.fromCoroutine(self._waiting[1].build_body(self._reactor))
            prepared.addErrback(lambda _: None)  # the error recurs when the command is sent, and is logged then
