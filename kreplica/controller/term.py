"""What a broker has only while it is the controller: the context, its writes, its channels to the brokers.

Made by winning the election, thrown away by resigning, so that nothing of an old term can leak into the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions.decisions import RulesOf, StateChange, TopicRules
from kreplica.controller.dependencies import Channel, Surroundings
from kreplica.controller.effects.command_batch import BrokerRequests, Command
from kreplica.controller.effects.command_responses import CommandAnswer
from kreplica.controller.effects.state_writes import StateWrites
from kreplica.controller.event_types import BrokersChanged, CommandRefused, Event, ReplicasRecovered, ReplicasStopped
from kreplica.controller.history.controller_history import Memory
from kreplica.controller.history.step_metrics import CountedClient, Counters
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState
from kreplica.errors import ErrorCode, KreplicaError
from kreplica.model import NO_LEADER, BrokerRegistration, TopicPartition
from kreplica.zookeeper import EventType, WatchEvent, read_all

log = Logger()

T = TypeVar("T")

CONFLICTS_MAX = 10
"""How often an event's decisions are made anew because leaders wrote states meanwhile."""

SLICE = 500
"""So many partitions are decided between two looks at the clock."""


class StatesContested(KreplicaError):
    """Others wrote the same states each time: everything has to be read anew."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """A listener that queues an event when a znode changes.

    :param ignored: a kind of change that another listener tells of.
    :param watched: the znodes that have a listener.
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


class Office:
    """The state of one term.  Event handlers (``topics``, ``brokers``, ``failover``) work on it, one at a time."""

    def __init__(
        self,
        surroundings: Surroundings,
        context: ControllerContext,
        put: Callable[[Event], None],
        counters: Counters,
        memory: Memory | None = None,
    ) -> None:
        self.runtime = surroundings.runtime
        self.client = CountedClient(surroundings.client, counters)
        self.config = surroundings.config
        self.now_s = surroundings.now_s
        self.context = context
        self.put = put
        self.counters = counters
        self.memory = memory or Memory(surroundings.config.broker_id, counters.timeline, surroundings.dates_ms)
        self.writes = StateWrites(self.client, context.epoch_znode_version, self.breathe)
        self.untold: set[int] = set()
        """Live brokers that missed commands, and have to be told everything."""
        self.noted_epochs: dict[int, int] = {}
        """What ``/kreplica/broker_epochs`` says."""
        self._channels: dict[int, Channel] = {}
        self._closing: list[Deferred[None]] = []
        self._closed = False
        self._timers: dict[Event, IDelayedCall] = {}
        self._watched: set[str] = set()
        self._long_loop = surroundings.long_loop()
        self._connect = surroundings.connect

    # --- brokers -----------------------------------------------------------------------------------------------------

    def open_channel(self, registration: BrokerRegistration) -> None:
        """Start to speak to a broker that has joined; one without the brokers' listener is left out, and logged."""
        endpoint = registration.endpoint(self.config.listener)
        if self._closed:
            return
        if endpoint is None:
            log.error(
                "controller: broker {broker} has no listener {listener}, so it cannot be told anything; it has {known}",
                broker=registration.broker_id,
                listener=self.config.listener,
                known=", ".join(map(str, registration.endpoints)) or "none",
            )
            return
        self._channels[registration.broker_id] = self._connect(
            registration,
            endpoint,
            client_id=f"controller-{self.config.broker_id}",
            timeout_s=self.config.request_timeout_s,
            answered=self._answered,
            overflowed=self._overflowed,
            stopping=lambda: registration.broker_id in self.context.shutting_down,
            sent=self._sent,
            late=self._late,
        )

    def close_channel(self, broker_id: int) -> None:
        """Speak no more to a broker; nobody waits until the connection is gone, which may take a dead peer long."""
        channel = self._channels.pop(broker_id, None)
        self.counters.timeline.gone(broker_id)
        if channel is not None:
            closing = Deferred.fromCoroutine(channel.close())
            self._closing.append(closing)
            closing.addErrback(lambda failure: log.failure("closing a controller's channel", failure))
            closing.addBoth(lambda _: self._closing.remove(closing))

    async def close(self) -> None:
        """Resign: close every channel, whatever waits in them; returns when the last connection is gone.

        An event that is being handled may go on for a moment; what it would begin now never begins.
        """
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for broker_id in list(self._channels):
            self.close_channel(broker_id)
        await DeferredList(list(self._closing))

    def put_later(self, event: Event, seconds: float) -> None:
        """Queue an event after a while; one that is on its way already stands for both."""

        def due() -> None:
            del self._timers[event]
            self.put(event)

        if event not in self._timers and not self._closed:
            self._timers[event] = self.runtime.reactor.callLater(seconds, due)

    def requests(self) -> BrokerRequests:
        """A fresh batch for this step."""
        return BrokerRequests(self.context, self.config.broker_id, self.config.listener, self._send)

    def _send(self, broker_id: int, command: Command) -> None:
        channel = self._channels.get(broker_id)
        if channel is not None:
            # Nobody waits for what a broker does that is about to stop: the others act in its place.
            self.counters.command_queued(broker_id, command, awaited=broker_id not in self.context.shutting_down)
            channel.send(command)

    def _overflowed(self, broker_id: int) -> None:
        self.counters.timeline.gone(broker_id)
        self.untold.add(broker_id)
        self.put(BrokersChanged())

    def _sent(self, command: Command, body: dict[str, Any]) -> None:
        self.counters.timeline.sent(command, body["topic_states"].size)

    def _late(self, broker_id: int, command: Command) -> None:
        self.counters.command_late(broker_id, command)
        self.memory.late(broker_id, command)

    def _answered(self, broker_id: int, command: Command, answer: CommandAnswer) -> None:
        self.counters.timeline.answered(command)
        names = {t.topic_id: name for name, t in self.context.topics.items()} if answer.refusals else {}
        errors = answer.errors(command.what, names)
        if command.api.name == "StopReplica":
            going = [p for p in command.what if self.context.is_leaving(p, broker_id)]
            if going:
                results = tuple((p, errors.get(p, ErrorCode.NONE)) for p in going)
                self.put(ReplicasStopped(broker_id, command.broker_epoch, command.delete, results))
            return
        failed = self.context.failed.get(broker_id)
        if failed:
            recovered = tuple(p for p in command.what if p in failed and p not in errors)
            if recovered and command.api.name == "LeaderAndIsr":
                self.put(ReplicasRecovered(broker_id, recovered))
        if errors:
            epoch = command.broker_epoch
            self.put(CommandRefused(broker_id, epoch, command.api.name, tuple(errors.items())))

    # --- ZooKeeper ---------------------------------------------------------------------------------------------------

    def watch(self, path: str, event: Event, ignored: EventType | None = None) -> Watcher | None:
        """A listener that queues an event when the znode changes; None where one is left there already.

        :param ignored: a kind of change that another listener tells of.
        """
        if path in self._watched:
            return None
        self._watched.add(path)

        return Watcher(path, event, ignored, self._watched, self.put)

    def unwatched(self, path: str) -> None:
        """The read that was to leave a listener failed."""
        self._watched.discard(path)

    async def note_epochs(self) -> None:
        """Every broker's process that lives has been dealt with: the next controller is told so."""
        known = self.context.known_epochs
        if known != self.noted_epochs:
            await self.writes.write_broker_epochs(known)
            self.noted_epochs = dict(known)

    # --- states ------------------------------------------------------------------------------------------------------

    def rules(self) -> RulesOf:
        """What topics' settings say now; each topic's are looked up once, so ask for them anew in each step."""

        def rules_of(topic: str) -> TopicRules:
            return TopicRules(self.config.unclean_allowed(topic), self.config.min_insync_replicas(topic))

        return cache(rules_of)

    async def breathe(self) -> None:
        """Let others have a turn of the reactor, where this one has lasted long enough."""
        if self._long_loop.is_over:
            await self._long_loop.next()

    async def in_turns(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The same items, with turns for others in between."""
        for number, item in enumerate(items):
            if number % SLICE == 0:
                await self.breathe()
            yield item

    async def decide(
        self,
        partitions: Iterable[TopicPartition],
        decide: Callable[[Sequence[TopicPartition]], list[StateChange]],
        requests: BrokerRequests,
    ) -> None:
        """Decide, write, and decide anew where somebody else wrote first, until nothing is left undecided.

        :param decide: from the context to the changes that these partitions need; where none, there is none.
        :raise StatesContested: after ``CONFLICTS_MAX`` times.
        """
        waiting = list(partitions)
        for _ in range(CONFLICTS_MAX):
            changes: list[StateChange] = []
            for start in range(0, len(waiting), SLICE):
                changes += decide(waiting[start : start + SLICE])
                await self.breathe()
            waiting = await self.apply(changes, requests) if changes else []
            if not waiting:
                return
        raise StatesContested(f"{len(waiting)} states were written by others {CONFLICTS_MAX} times, as {waiting[0]}")

    async def apply(self, changes: Sequence[StateChange], requests: BrokerRequests) -> list[TopicPartition]:
        """Write the states, put what succeeded into the context, and form the requests that follow from it.

        :return: the partitions whose change was refused; their states have been read anew, so that the caller may
            decide again (as ``decide`` does).
        """
        outcome = await self.writes.write_states(changes)
        for number, change in enumerate(outcome.written, 1):
            self.adopt(change)
            if not change.fences_only:
                listeners = self.context.listeners(change.partition)
                requests.lead_or_follow(change.partition, listeners, is_new=change.is_new)
            if number % SLICE == 0:
                await self.breathe()
        requests.publish(change.partition for change in outcome.written if not change.fences_only)
        for refused in outcome.refused:
            log.info(
                "controller: the state of {partition} was not written, and is decided anew: {error}",
                partition=str(refused.change.partition),
                error=str(refused.error),
            )
        refused_partitions = [refused.change.partition for refused in outcome.refused]
        await self.read_states(refused_partitions)
        return refused_partitions

    def adopt(self, change: StateChange) -> None:
        """Put a state that was written into the context."""
        self.memory.changed(change, self.context.replicas)
        self.context.leadership[change.partition] = change.state
        if change.is_new:
            self.context.begun[change.partition] = frozenset(self.context.replicas(change.partition))
        online = change.state.leader != NO_LEADER
        self.context.move_partition(change.partition, PartitionState.ONLINE if online else PartitionState.OFFLINE)

    async def read_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Read the state znodes of these partitions into the context; what has none is no longer in it.

        :return: in which transaction (zxid) each was last written; those that have none or cannot be read are left out.
        """
        written: dict[TopicPartition, int] = {}
        wanted = list(partitions)
        if not wanted:
            return written
        paths = [znodes.partition_state_path(*partition) for partition in wanted]
        answers = await read_all(self.client, paths)
        for index, (partition, path, answer) in enumerate(zip(wanted, paths, answers, strict=True)):
            if index % SLICE == 0:
                await self.breathe()
            self.context.leadership.pop(partition, None)
            if isinstance(answer, tuple):
                data, stat = answer
                try:
                    self.context.leadership[partition] = documents.decode_partition_state(path, data, stat.version)
                    written[partition] = stat.mzxid
                except znodes.ZnodeError as error:
                    log.error("controller: a state that cannot be read is left alone: {error}", error=str(error))
        return written
