"""The controller of one broker: stands for election, and while elected handles the cluster's events one at a time.

Connection loss while an event is handled leaves its outcome unknown: the office is dropped and, when the connection is
back and ``/controller`` is still ours, taken again from what ZooKeeper says.  A lost session discards everything.  That
another broker was elected (a failed check of ``/controller_epoch``) is caught in one place: ``_failed``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.dependencies import Surroundings
from kreplica.controller.effects.state_writes import ControllerMoved
from kreplica.controller.event_queue import EventQueue
from kreplica.controller.event_types import (
    AssignmentChanged,
    BalanceLeaders,
    BrokersChanged,
    CommandRefused,
    ControllerChanged,
    DeletionsChanged,
    DirectoriesFailed,
    ElectionAsked,
    Event,
    InSyncSetsChanged,
    MovesAsked,
    PartitionRequestsChanged,
    PlansChanged,
    PlansDue,
    PreferredElectionAsked,
    Question,
    ReassignmentAsked,
    ReassignmentsRequested,
    RemovalDue,
    ReplicasRecovered,
    ReplicasStopped,
    RetryDeletions,
    RetryReplicas,
    ShutdownAsked,
    TopicsChanged,
    TopicSettingsChanged,
)
from kreplica.controller.handlers import (
    broker_changes,
    command_errors,
    controlled_shutdown,
    failed_replicas,
    isr_changes,
    leader_balance,
    log_dir_events,
    partition_counts,
    reassignment,
    reassignment_requests,
    replica_removal,
    topic_creation,
    topic_deletion,
)
from kreplica.controller.history.controller_history import Memory
from kreplica.controller.history.observer import Diary
from kreplica.controller.history.step_metrics import Counters
from kreplica.controller.history.step_timeline import Timeline
from kreplica.controller.plans import execution
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.takeover import take_office
from kreplica.controller.term import Office
from kreplica.errors import ErrorCode, KafkaError
from kreplica.zookeeper import (
    ConnectionLoss,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    SetData,
    ZooKeeperError,
)

log = Logger()

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 30.0

WAITING_EVENTS_MAX = 1000
"""No question is taken in while so many events wait."""


class Controller:
    """Owned by the broker's service; ``start`` after the broker has registered itself.

    :param surroundings: when the session of their client expires everything here is forgotten, and the owner calls
        ``stand_for_election`` when a new session exists.
    :param diary: is told of what the surroundings do not show.
    """

    def __init__(self, surroundings: Surroundings, diary: Diary | None = None) -> None:
        self._surroundings = surroundings
        self._diary = diary or Diary()
        self._client = surroundings.client
        self._config = surroundings.config
        self._reactor = surroundings.runtime.reactor
        self._office: Office | None = None
        self.controller_id: int | None = None
        self._commands_count = 0
        """Of the terms that are over: one that begins again has the same epoch, and brokers go by the numbers."""
        self._retry: IDelayedCall | None = None
        self._retry_seconds = RETRY_SECONDS_MIN
        self._closing: list[Deferred[None]] = []
        self._watches = False
        self._stopped = False
        self.timeline = Timeline(self._reactor.seconds)
        self.counters = Counters(self.timeline)
        self.memory = Memory(self._config.broker_id, self.timeline, surroundings.dates_ms)
        self.queue = EventQueue(
            self._reactor, self._handle, self._failed, lambda: self.counters.cost, self.timeline, self._diary
        )
        self._forget_listener: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        """Whether this broker is the controller and has taken office."""
        return self._office is not None

    @property
    def context(self) -> ControllerContext | None:
        """What is known while active (read it, never change it)."""
        return self._office.context if self._office else None

    def start(self) -> None:
        """Begin to stand for election."""
        with self._diary.called("start"):
            self._start()

    def _start(self) -> None:
        self._forget_listener = self._client.on_session_event(self._session_changed)
        self._look_again()

    def stand_for_election(self) -> None:
        """Look at ``/controller`` and take it where it is free."""
        with self._diary.called("stand_for_election"):
            self._look_again()

    def ask(self, question: Question) -> Deferred[Any]:
        """Put a question of a broker or an administrator behind the events that wait.

        :return: what the question says that its answer is.
        :raise KafkaError: (from the Deferred) NOT_CONTROLLER, also where the office is lost before the answer;
            REQUEST_TIMED_OUT where too much waits already.
        """
        with self._diary.asked(question):
            self._take_in(question)
        return question.answer

    def _take_in(self, question: Question) -> None:
        if self._office is None or self._stopped:
            question.dropped()
        elif len(self.queue) >= WAITING_EVENTS_MAX:
            text = f"{len(self.queue)} events wait for the controller already"
            question.settle(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            self.queue.put(question)

    def topic_settings_changed(self) -> None:
        """Settings of topics are others now."""
        with self._diary.called("topic_settings_changed"):
            if self._office is not None:
                self.queue.put(TopicSettingsChanged())

    async def stop(self) -> None:
        """Handle no more events and close the channels.  ``/controller`` goes with the session."""
        with self._diary.called("stop"):
            self._stopped = True
            if self._forget_listener is not None:
                self._forget_listener()
            if self._retry is not None and self._retry.active():
                self._retry.cancel()
            idle = self.queue.stop()
        await idle
        self._resign("it stops")
        await DeferredList(list(self._closing))

    # --- events ------------------------------------------------------------------------------------------------------

    async def _handle(self, event: Event) -> None:
        with self.memory.handling(event):
            await self._obey(event)
        self._retry_seconds = RETRY_SECONDS_MIN

    async def _obey(self, event: Event) -> None:
        if isinstance(event, ControllerChanged):
            await self._look()
        elif self._office is None:
            event.dropped()
        else:
            office = self._office
            await (self._answer(office, event) if isinstance(event, Question) else self._dispatch(office, event))
            execution.look_again(office, event)

    async def _answer(self, office: Office, question: Question) -> None:
        try:
            answer = await self._dispatch(office, question)
        except KafkaError as error:
            answer = error
        # Last, when all that it asked for is done: whoever hears it may ask again at once.
        question.settle(answer)

    def _dispatch(self, office: Office, event: Event) -> Awaitable[Any]:
        match event:
            case BrokersChanged():
                return broker_changes.brokers_changed(office)
            case TopicsChanged():
                return topic_creation.topics_changed(office)
            case AssignmentChanged(topic=topic):
                return topic_creation.assignment_changed(office, topic)
            case DeletionsChanged():
                return topic_deletion.deletions_changed(office)
            case ReplicasStopped():
                return replica_removal.replicas_stopped(office, event)
            case RetryDeletions():
                return replica_removal.retry_deletions(office)
            case ReassignmentAsked():
                return reassignment.reassignment_asked(office, event)
            case MovesAsked():
                return reassignment.moves_asked(office, event)
            case ReassignmentsRequested():
                return reassignment_requests.reassignments_requested(office)
            case PartitionRequestsChanged() | RemovalDue():
                return partition_counts.partitions_asked(office)
            case PlansChanged():
                return execution.plans_changed(office)
            case PlansDue():
                return execution.plans_due(office)
            case CommandRefused():
                return command_errors.command_refused(office, event)
            case ReplicasRecovered():
                return failed_replicas.replicas_recovered(office, event)
            case RetryReplicas():
                return failed_replicas.retry_replicas(office)
            case DirectoriesFailed():
                return log_dir_events.directories_failed(office)
            case InSyncSetsChanged():
                return isr_changes.in_sync_sets_changed(office)
            case TopicSettingsChanged():
                return broker_changes.elect_offline_partitions(office)
            case ShutdownAsked():
                return controlled_shutdown.shutdown_asked(office, event)
            case BalanceLeaders():
                return leader_balance.balance_leaders(office)
            case PreferredElectionAsked():
                return leader_balance.preferred_election_asked(office)
            case ElectionAsked():
                return leader_balance.election_asked(office, event)
        raise TypeError(f"no handler for {event}")

    def _failed(self, event: Event, error: BaseException) -> None:
        """Whatever an event's handler raises ends up here: the office is dropped, and ZooKeeper asked anew."""
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
            log.error("controller: {event} failed: {error!r}; starting anew", event=str(event), error=error)
        if self._retry is None or not self._retry.active():
            self._retry = self._reactor.callLater(self._retry_seconds, self._look_again)
            self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS_MAX)

    def _look_again(self) -> None:
        self.queue.put(ControllerChanged())

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self.queue.pause()
        elif state is SessionState.CONNECTED:
            self.queue.resume()
        elif state is SessionState.EXPIRED:
            self._watches = False
            self.queue.discard()
            self.queue.resume()
            self._resign("its session with ZooKeeper has ended")
        self.memory.session_changed(state)

    # --- the office --------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Who is the controller?  Nobody: stand for election.  We: take office.  Another: resign."""

        watch = None if self._watches else self._changed
        self._watches = True
        try:
            stat = await self._client.exists(znodes.CONTROLLER, watch)
        except ZooKeeperError:
            self._watches = False  # whether one was left is unknown; two of them do no harm, none would
            raise
        if stat is None:
            await self._elect()
            return
        try:
            data, stat = await self._client.get_data(znodes.CONTROLLER)
        except NoNode:
            self.queue.put(ControllerChanged())
            return
        self.controller_id = documents.decode_controller(data)
        if stat.ephemeral_owner != self._client.session_id:
            self._resign(f"broker {self.controller_id} is now")
        elif self.controller_id != self._config.broker_id:
            # Somebody wrote another id over it: an operator's way to move the controller.
            self._resign(f"somebody wrote broker {self.controller_id} into {znodes.CONTROLLER}")
            await self._client.delete(znodes.CONTROLLER)
        elif self._office is None:
            epoch, epoch_stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
            if epoch_stat.mzxid == stat.czxid:
                await self._take_office(documents.decode_controller_epoch(epoch), epoch_stat.version)
            else:
                # Both are written by one multi: somebody wrote the epoch since, so our term is over.
                await self._client.delete(znodes.CONTROLLER, stat.version)

    def _changed(self, _: object) -> None:
        self._watches = False
        self.queue.put(ControllerChanged())

    async def _elect(self) -> None:
        self._resign(f"somebody deleted {znodes.CONTROLLER}")
        try:
            data, stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
        except NoNode:
            try:
                await self._client.create(znodes.CONTROLLER_EPOCH, documents.encode_controller_epoch(0))
            except NodeExists:
                pass
            data, stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
        epoch = documents.decode_controller_epoch(data) + 1
        controller = documents.encode_controller(self._config.broker_id, self._surroundings.runtime.wall_clock_ms())
        try:
            await self._client.multi(
                [
                    Create(znodes.CONTROLLER, controller, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, documents.encode_controller_epoch(epoch), stat.version),
                ]
            )
        except MultiFailed:
            # Another was faster: look who it is.
            self.queue.put(ControllerChanged())
            return
        self.controller_id = self._config.broker_id
        await self._take_office(epoch, stat.version + 1)

    async def _take_office(self, epoch: int, epoch_znode_version: int) -> None:
        context = ControllerContext(epoch, epoch_znode_version)
        context.commands_count = self._commands_count
        context.preference = self._config.preference
        office = Office(self._surroundings, context, self.queue.put, self.counters, self.memory)
        self._office = office
        self._diary.took_office(epoch)
        self.memory.took_office(epoch)
        await take_office(office)

    def _resign(self, reason: str) -> None:
        office, self._office = self._office, None
        if office is not None:
            self._commands_count = office.context.commands_count
            self._diary.resigned()
            self.memory.resigned(reason)
            closing = Deferred.fromCoroutine(office.close())
            self._closing.append(closing)
            closing.addErrback(lambda failure: log.failure("resigning", failure))
            closing.addBoth(lambda _: self._closing.remove(closing))
