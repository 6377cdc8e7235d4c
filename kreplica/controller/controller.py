"""The controller of one broker: runs for election and, while elected, handles cluster events one at a time.

If the ZooKeeper connection is lost while an event is being handled, the event's requests continue after the client has
reconnected (``effects.resumption``).  If the outcome of a write cannot be determined, the term ends, and a new term
starts from the state in ZooKeeper if ``/controller`` still names this broker.  An expired session discards everything.
A failed check of ``/controller_epoch`` means that another broker was elected; ``_failed`` handles it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.controller.controller_election import Election
from kreplica.controller.dependencies import ControllerDependencies
from kreplica.controller.effects.state_writes import ControllerMoved
from kreplica.controller.event_handlers import HANDLERS
from kreplica.controller.event_queue import EventQueue
from kreplica.controller.event_types import (
    ControllerChanged,
    ControllerRequest,
    Event,
    TopicSettingsChanged,
)
from kreplica.controller.history.controller_history import ControllerHistory
from kreplica.controller.history.observer import ControllerObserver
from kreplica.controller.history.step_metrics import Counters
from kreplica.controller.history.step_timeline import Timeline
from kreplica.controller.plans import execution
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.takeover import take_over
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode, KafkaError
from kreplica.zookeeper import ConnectionLoss, SessionExpired, SessionState

log = Logger()

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 30.0

RESIGNED_SECONDS = 1.0
"""Time during which a broker that resigned does not run for election, so that another broker wins if there is one."""

WAITING_EVENTS_MAX = 1000
"""Queue length at which requests are rejected."""


class Controller:
    """Runs for election and, while elected, handles events; owned by the broker's service.

    The owner calls ``start`` after the broker has registered itself, and ``stand_for_election`` when a new ZooKeeper
    session has replaced an expired one.

    :param observer: notified of calls to the controller and of its events, so that a journal can record them.
    """

    def __init__(self, dependencies: ControllerDependencies, observer: ControllerObserver | None = None) -> None:
        self._dependencies = dependencies
        self._observer = observer or ControllerObserver()
        self._client = dependencies.client
        self._config = dependencies.config
        self._reactor = dependencies.runtime.reactor
        self._term: ControllerTerm | None = None
        self._commands_count = 0
        """Number of commands sent in earlier terms; continued because a resumed term has the same epoch, in which
        brokers order commands by number.
        """
        self._retry: IDelayedCall | None = None
        self._retry_seconds = RETRY_SECONDS_MIN
        self._closing: list[Deferred[None]] = []
        self._stopped = False
        self.timeline = Timeline(self._reactor.seconds)
        self.counters = Counters(self.timeline)
        self.history = ControllerHistory(self._config.broker_id, self.timeline, dependencies.audit_clock_ms)
        self.queue = EventQueue(
            self._reactor, self._handle, self._failed, lambda: self.counters.cost, self.timeline, self._observer
        )
        self.election = Election(
            self._client,
            self._config.broker_id,
            dependencies.runtime.wall_clock_ms,
            check_again=lambda: self.queue.put(ControllerChanged()),
            end_term=self._resign,
            pause=self._pause_candidacy,
        )
        self._forget_listener: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        """True if this broker is the controller."""
        return self._term is not None

    @property
    def context(self) -> ControllerContext | None:
        """The controller's view of the cluster, or None while inactive.  Callers must not modify it."""
        return self._term.context if self._term else None

    @property
    def watches_count(self) -> int:
        """Number of ZooKeeper watches set by the current term; 0 while inactive."""
        return self._term.watches_count if self._term else 0

    def start(self) -> None:
        """Start running for election."""
        with self._observer.called("start"):
            self._start()

    def _start(self) -> None:
        self._forget_listener = self._client.on_session_event(self._session_changed)
        self._queue_election_check()

    def stand_for_election(self) -> None:
        """Read ``/controller`` and run for election if it is absent."""
        with self._observer.called("stand_for_election"):
            self._queue_election_check()

    def submit(self, request: ControllerRequest) -> Deferred[Any]:
        """Queue a request from a broker or an administrator.

        :return: fires with the result that the request's class describes.
        :raise KafkaError: (from the Deferred) NOT_CONTROLLER, even if the term ends before the response;
            REQUEST_TIMED_OUT if the queue is full.
        """
        with self._observer.request_received(request):
            self._enqueue(request)
        return request.response

    def _enqueue(self, request: ControllerRequest) -> None:
        if self._term is None or self._stopped:
            request.dropped()
        elif len(self.queue) >= WAITING_EVENTS_MAX:
            text = f"{len(self.queue)} events are already waiting for the controller"
            request.settle(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            self.queue.put(request)

    def topic_settings_changed(self) -> None:
        """Re-evaluate offline partitions after a change of topic configurations."""
        with self._observer.called("topic_settings_changed"):
            if self._term is not None:
                self.queue.put(TopicSettingsChanged())

    async def stop(self) -> None:
        """Stop handling events and close the channels.  ``/controller`` is removed with the session."""
        with self._observer.called("stop"):
            self._stopped = True
            if self._forget_listener is not None:
                self._forget_listener()
            if self._retry is not None and self._retry.active():
                self._retry.cancel()
            idle = self.queue.stop()
        await idle
        self._resign("the broker is stopping")
        await DeferredList(list(self._closing))

    # --- events ------------------------------------------------------------------------------------------------------

    async def _handle(self, event: Event) -> None:
        with self.history.handling(event):
            await self._route(event)
        self._retry_seconds = RETRY_SECONDS_MIN

    async def _route(self, event: Event) -> None:
        if isinstance(event, ControllerChanged):
            elected = await self.election.check(self._term is not None)
            if elected is not None:
                await self._take_over(*elected)
        elif self._term is None:
            event.dropped()
        else:
            term = self._term
            if isinstance(event, ControllerRequest):
                await self._handle_request(term, event)
            else:
                await HANDLERS[type(event)](term, event)
            execution.schedule_pass(term, event)

    async def _handle_request(self, term: ControllerTerm, request: ControllerRequest) -> None:
        try:
            result = await HANDLERS[type(request)](term, request)
        except KafkaError as error:
            result = error
        # Send the response last, because the requester may send its next request immediately.
        request.settle(result)

    def _failed(self, event: Event, error: BaseException) -> None:
        """End the term after a handler failed, and schedule another check of ``/controller``."""
        if self._stopped:
            return
        self._resign(f"{type(event).__name__} failed ({error})")
        if isinstance(error, SessionExpired):
            return
        if isinstance(error, ControllerMoved):
            log.warn("controller: broker {broker} resigns: {error}", broker=self._config.broker_id, error=str(error))
        elif isinstance(error, ConnectionLoss):
            log.warn("controller: the connection to ZooKeeper was lost in {event}", event=str(event))
        else:
            log.error("controller: {event} failed: {error!r}; restarting the controller", event=str(event), error=error)
        if self._retry is None or not self._retry.active():
            self._retry = self._reactor.callLater(self._retry_seconds, self._queue_election_check)
            self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS_MAX)

    def _queue_election_check(self) -> None:
        self.election.run_again()
        self.queue.put(ControllerChanged())

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self.queue.pause()
        elif state is SessionState.CONNECTED:
            self.queue.resume()
        elif state.lost:
            self.election.watch_lost()
            self.queue.discard()
            self.queue.resume()
            has_expired = state is SessionState.EXPIRED
            self._resign("its ZooKeeper session expired" if has_expired else "ZooKeeper rejected its user")
        self.history.session_changed(state)

    # --- terms --------------------------------------------------------------------------------------------------------

    def _pause_candidacy(self) -> None:
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._retry = self._reactor.callLater(RESIGNED_SECONDS, self._queue_election_check)

    async def _take_over(self, epoch: int, epoch_znode_version: int) -> None:
        context = ControllerContext(epoch, epoch_znode_version)
        context.commands_count = self._commands_count
        context.preference = self._config.preference
        term = ControllerTerm(self._dependencies, context, self.queue, self.counters, self.history)
        self._term = term
        self._observer.term_started(epoch)
        self.history.term_started(epoch)
        await take_over(term)

    def _resign(self, reason: str) -> None:
        term, self._term = self._term, None
        if term is not None:
            self._commands_count = term.context.commands_count
            self._observer.term_ended()
            self.history.term_ended(reason)
            closing = Deferred.fromCoroutine(term.close())
            self._closing.append(closing)
            closing.addErrback(lambda failure: log.failure("resigning", failure))
            closing.addBoth(lambda _: self._closing.remove(closing))
