"""State that exists only while a broker is the controller: the context, ZooKeeper writes and broker channels.

Created when the broker wins the election and discarded when it resigns, so that no state carries over to the next term.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions.state_changes import RulesOf, StateChange, TopicRules
from kreplica.controller.dependencies import Channel, ControllerDependencies
from kreplica.controller.effects.command_batch import Command, CommandBatch
from kreplica.controller.effects.command_responses import CommandResponse
from kreplica.controller.effects.resumption import ResumingClient
from kreplica.controller.effects.state_writes import StateWrites
from kreplica.controller.event_types import BrokersChanged, CommandRefused, Event, ReplicasRecovered, ReplicasStopped
from kreplica.controller.history.controller_history import ControllerHistory
from kreplica.controller.history.step_metrics import CountedClient, Counters
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState
from kreplica.errors import ErrorCode, KreplicaError
from kreplica.model import NO_LEADER, BrokerRegistration, TopicPartition
from kreplica.zookeeper import EventType, WatchEvent, read_all

log = Logger()

T = TypeVar("T")

CONFLICTS_MAX = 10
"""Maximum number of attempts to write an event's decisions; concurrent writes by leaders make an attempt fail."""

SLICE = 500
"""Number of partitions processed between two checks of the clock."""


class TooManyConflicts(KreplicaError):
    """Each attempt to write states failed because other writers had changed them; the term ends."""


class WaitingEvents(Protocol):
    """The subset of ``EventQueue`` that handlers use."""

    @property
    def has_urgent(self) -> bool: ...

    def put(self, event: Event) -> None: ...


@dataclass(frozen=True, slots=True)
class Watcher:
    """A ZooKeeper watch that queues an event when its znode changes.

    :param ignored: a type of change that another watch reports.
    :param watched: paths of the znodes that have a watch.
    """

    path: str
    event: Event
    ignored: EventType | None
    watched: set[str]
    put: Callable[[Event], None]

    def __call__(self, change: WatchEvent) -> None:
        self.watched.discard(self.path)
        if change.type is not self.ignored:
            self.put(self.event)


class ControllerTerm:
    """State of one term.  Event handlers modify it, one at a time."""

    def __init__(
        self,
        dependencies: ControllerDependencies,
        context: ControllerContext,
        queue: WaitingEvents,
        counters: Counters,
        history: ControllerHistory | None = None,
    ) -> None:
        self.runtime = dependencies.runtime
        client = dependencies.client
        self.client = ResumingClient(CountedClient(client, counters), lambda: client.last_zxid, counters.resumed)
        self.config = dependencies.config
        self.now_s = dependencies.now_s
        self.context = context
        self._queue = queue
        self.put = queue.put
        self.counters = counters
        self.history = history or ControllerHistory(
            dependencies.config.broker_id, counters.timeline, dependencies.audit_clock_ms
        )
        self.writes = StateWrites(self.client, context.epoch_znode_version, self.yield_to_reactor)
        self.outdated_brokers: set[int] = set()
        """Live brokers that missed commands, so the full state must be sent to them again."""
        self.stored_epochs: dict[int, int] = {}
        """Contents of ``/kreplica/broker_epochs``."""
        self._channels: dict[int, Channel] = {}
        self._closing: list[Deferred[None]] = []
        self._closed = False
        self._timers: dict[Event, IDelayedCall] = {}
        self._watched: set[str] = set()
        self._long_loop = dependencies.long_loop()
        self._connect = dependencies.connect

    # --- brokers -----------------------------------------------------------------------------------------------------

    def open_channel(self, registration: BrokerRegistration) -> None:
        """Open a channel to a broker; log an error if the broker does not have the listener for commands."""
        listener = self.config.control_plane_listener or self.config.listener
        endpoint = registration.endpoint(listener)
        if self._closed:
            return
        if endpoint is None:
            log.error(
                "controller: broker {broker} has no listener {listener}, so no command can be sent to it; "
                "its listeners: {known}",
                broker=registration.broker_id,
                listener=listener,
                known=", ".join(map(str, registration.endpoints)) or "none",
            )
            return
        self._channels[registration.broker_id] = self._connect(
            registration,
            endpoint,
            client_id=f"controller-{self.config.broker_id}",
            timeout_s=self.config.request_timeout_s,
            answered=self._on_answered,
            overflowed=self._on_overflow,
            stopping=lambda: registration.broker_id in self.context.shutting_down,
            sent=self._on_sent,
            late=self._on_late,
        )

    def close_channel(self, broker_id: int) -> None:
        """Close the channel to a broker without waiting for the disconnection, which is slow if the broker is dead."""
        channel = self._channels.pop(broker_id, None)
        self.counters.timeline.broker_left(broker_id)
        if channel is not None:
            closing = Deferred.fromCoroutine(channel.close())
            self._closing.append(closing)
            closing.addErrback(lambda failure: log.failure("closing a controller's channel", failure))
            closing.addBoth(lambda _: self._closing.remove(closing))

    async def close(self) -> None:
        """Close every channel and discard queued commands; return when the last connection is closed.

        The handler of the current event may continue for a moment, but starts no timer and opens no channel.
        """
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for broker_id in list(self._channels):
            self.close_channel(broker_id)
        await DeferredList(list(self._closing))

    def put_later(self, event: Event, seconds: float) -> None:
        """Queue an event after a delay, unless a timer for the same event is already running."""

        def due() -> None:
            del self._timers[event]
            self.put(event)

        if event not in self._timers and not self._closed:
            self._timers[event] = self.runtime.reactor.callLater(seconds, due)

    def new_batch(self) -> CommandBatch:
        """Return an empty batch of commands for this step."""
        return CommandBatch(self.context, self.config.broker_id, self.config.listener, self._send)

    def _send(self, broker_id: int, command: Command) -> None:
        channel = self._channels.get(broker_id)
        if channel is not None:
            # A step does not wait for a broker that is shutting down, because other brokers replace it.
            self.counters.command_queued(broker_id, command, awaited=broker_id not in self.context.shutting_down)
            channel.send(command)

    def _on_overflow(self, broker_id: int) -> None:
        self.counters.timeline.broker_left(broker_id)
        self.outdated_brokers.add(broker_id)
        self.put(BrokersChanged())

    def _on_sent(self, command: Command, body: dict[str, Any]) -> None:
        self.counters.timeline.sent(command, body["topic_states"].size)

    def _on_late(self, broker_id: int, command: Command) -> None:
        self.counters.command_late(broker_id, command)
        self.history.record_late(broker_id, command)

    def _on_answered(self, broker_id: int, command: Command, response: CommandResponse) -> None:
        self.counters.timeline.answered(command)
        names = {t.topic_id: name for name, t in self.context.topics.items()} if response.partition_errors else {}
        errors = response.errors(command.partitions, names)
        if command.api.name == "StopReplica":
            to_delete = [p for p in command.partitions if self.context.will_be_deleted(p, broker_id)]
            if to_delete:
                results = tuple((p, errors.get(p, ErrorCode.NONE)) for p in to_delete)
                self.put(ReplicasStopped(broker_id, command.broker_epoch, command.delete, results))
            return
        failed = self.context.failed_replicas.get(broker_id)
        if failed:
            recovered = tuple(p for p in command.partitions if p in failed and p not in errors)
            if recovered and command.api.name == "LeaderAndIsr":
                self.put(ReplicasRecovered(broker_id, recovered))
        if errors:
            epoch = command.broker_epoch
            self.put(CommandRefused(broker_id, epoch, command.api.name, tuple(errors.items())))

    # --- ZooKeeper ---------------------------------------------------------------------------------------------------

    def watch(self, path: str, event: Event, ignored: EventType | None = None) -> Watcher | None:
        """Return a watch that queues an event when the znode changes, or None if the path already has one.

        :param ignored: a type of change that another watch reports.
        """
        if path in self._watched:
            return None
        self._watched.add(path)

        return Watcher(path, event, ignored, self._watched, self.put)

    @property
    def watches_count(self) -> int:
        """Number of ZooKeeper watches that this term has set and that have not fired."""
        return len(self._watched)

    def forget_watch(self, path: str) -> None:
        """Forget a watch whose read failed."""
        self._watched.discard(path)

    async def read_topic_settings(self, topics: Sequence[str]) -> None:
        """Load the configurations of topics; repeat this after a lost connection."""
        await self.client.repeat_if_lost(lambda: Deferred.fromCoroutine(self.config.read_topic_settings(topics)))

    async def store_epochs(self) -> None:
        """Write the epochs of the broker processes that were handled to ZooKeeper, for the next controller."""
        known = self.context.known_epochs
        if known != self.stored_epochs:
            await self.writes.write_broker_epochs(known)
            self.stored_epochs = dict(known)

    # --- states ------------------------------------------------------------------------------------------------------

    def rules(self) -> RulesOf:
        """Return a function that looks up and caches topic configurations; valid only during one step."""

        def rules_of(topic: str) -> TopicRules:
            return TopicRules(self.config.unclean_allowed(topic), self.config.min_insync_replicas(topic))

        return cache(rules_of)

    async def yield_to_reactor(self) -> None:
        """Yield to the reactor if the current loop has run long enough."""
        if self._long_loop.is_over:
            await self._long_loop.next()

    @property
    def must_stop_early(self) -> bool:
        """True if an urgent event is waiting: a long handler should then queue the rest of its work and return."""
        return self._queue.has_urgent

    async def in_slices(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Iterate over items; yield to the reactor if the loop has run long enough."""
        for number, item in enumerate(items):
            if number % SLICE == 0:
                await self.yield_to_reactor()
            yield item

    async def partitions_in(self, state: PartitionState) -> list[TopicPartition]:
        """Return the partitions in a state, without topics that are being deleted."""
        context = self.context
        return [
            partition
            async for partition in self.in_slices(context.all_partitions())
            if context.partition_state(partition) is state and partition.topic not in context.deleting
        ]

    async def decide(
        self,
        partitions: Iterable[TopicPartition],
        decide: Callable[[Sequence[TopicPartition]], list[StateChange]],
        batch: CommandBatch,
    ) -> None:
        """Compute and write state changes; repeat for partitions whose state changed concurrently.

        :param decide: returns the changes that these partitions need according to the context.
        :raise TooManyConflicts: after ``CONFLICTS_MAX`` attempts.
        """
        waiting = list(partitions)
        for _ in range(CONFLICTS_MAX):
            changes: list[StateChange] = []
            for start in range(0, len(waiting), SLICE):
                changes += decide(waiting[start : start + SLICE])
                await self.yield_to_reactor()
            waiting = await self.apply(changes, batch) if changes else []
            if not waiting:
                return
        raise TooManyConflicts(
            f"{len(waiting)} states changed concurrently in {CONFLICTS_MAX} attempts, for example {waiting[0]}"
        )

    async def apply(self, changes: Sequence[StateChange], batch: CommandBatch) -> list[TopicPartition]:
        """Write states, apply the written ones to the context, and add the resulting commands to the batch.

        :return: the partitions whose change was rejected.  Their states have been read again, so that the caller can
            repeat its decision (as ``decide`` does).
        """
        outcome = await self.writes.write_states(changes)
        published: list[TopicPartition] = []
        for number, change in enumerate(outcome.written, 1):
            self.adopt(change)
            if not change.only_fences:
                receivers = self.context.state_receivers(change.partition)
                batch.lead_or_follow(change.partition, receivers, is_new=change.is_new)
                published.append(change.partition)
            if number % SLICE == 0:
                await self.yield_to_reactor()
        batch.publish(published)
        for rejected in outcome.rejected:
            log.info(
                "controller: the state of {partition} was not written and is computed again: {error}",
                partition=str(rejected.change.partition),
                error=str(rejected.error),
            )
        rejected_partitions = [rejected.change.partition for rejected in outcome.rejected]
        await self.read_states(rejected_partitions)
        return rejected_partitions

    def adopt(self, change: StateChange) -> None:
        """Apply a written state to the context."""
        self.history.record_state(change, self.context.replicas)
        self.context.leadership[change.partition] = change.state
        if change.is_new:
            self.context.initial_replicas[change.partition] = _set_of(self.context.replicas(change.partition))
        online = change.state.leader != NO_LEADER
        self.context.set_partition_state(change.partition, PartitionState.ONLINE if online else PartitionState.OFFLINE)

    async def read_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Read the state znodes of these partitions into the context; remove partitions without one.

        :return: zxid of the last write, by partition; partitions without a readable state are omitted.
        """
        last_write_zxids: dict[TopicPartition, int] = {}
        existing, paths = [], []
        async for partition in self.in_slices(partitions):
            existing.append(partition)
            paths.append(znodes.partition_state_path(*partition))
        if not existing:
            return last_write_zxids
        read_results = await read_all(self.client, paths)
        for index, (partition, path, result) in enumerate(zip(existing, paths, read_results, strict=True)):
            if index % SLICE == 0:
                await self.yield_to_reactor()
            self.context.leadership.pop(partition, None)
            if isinstance(result, tuple):
                data, stat = result
                try:
                    self.context.leadership[partition] = documents.decode_partition_state(path, data, stat.version)
                    last_write_zxids[partition] = stat.mzxid
                except znodes.ZnodeError as error:
                    log.error("controller: ignoring an unreadable partition state: {error}", error=str(error))
        return last_write_zxids


@lru_cache(maxsize=1024)
def _set_of(brokers: tuple[int, ...]) -> frozenset[int]:
    """Return a set, which partitions with the same replicas share."""
    return frozenset(brokers)
