"""Wrappers that record everything that passes through the controller's dependencies.

They behave exactly like the wrapped objects.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from kreplica.controller.dependencies import (
    Channel,
    Client,
    Connect,
    ControllerConfig,
    ControllerDependencies,
    LongLoop,
    Watcher,
)
from kreplica.controller.effects.broker_channels import ResponseCallback
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.effects.command_responses import CommandResponse
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.value_json import (
    DeferredJson,
    digest,
    encode_operations,
    encode_reads,
    encode_rejections,
    encode_runs,
    encode_watch_event,
)
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.runtime import Reactor
from kreplica.zookeeper import (
    Created,
    Operation,
    OperationResult,
    Read,
    ReadResult,
    SessionState,
    Stat,
    WatchEvent,
)


def recorded(dependencies: ControllerDependencies, journal: Journal) -> ControllerDependencies:
    """Return dependencies that record every use."""
    runtime = dependencies.runtime
    return ControllerDependencies(
        runtime=replace(
            runtime,
            reactor=cast(Reactor, RecordedReactor(runtime.reactor, journal)),
            random=RecordedRandom(runtime.random, journal),
            wall_clock_ms=lambda: journal.read("wall_clock_ms", runtime.wall_clock_ms()),
        ),
        client=RecordedClient(dependencies.client, journal),
        config=recorded_config(dependencies.config, journal),
        now_s=lambda: journal.read("now_s", dependencies.now_s()),
        long_loop=lambda: RecordedLoop(dependencies.long_loop(), journal),
        connect=partial(connect, dependencies.connect, journal),
        audit_clock_ms=dependencies.audit_clock_ms,
    )


class RecordedReactor:
    """Records timers but not the clock, because no decision depends on it.

    Has only the methods that the controller uses.
    """

    def __init__(self, reactor: Reactor, journal: Journal) -> None:
        self._journal = journal
        self._call_later = reactor.callLater
        self.seconds = reactor.seconds

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall:
        number = self._journal.next_number("timer")
        self._journal.note({"out": "timer", "timer": number, "after_s": delay})

        def fired() -> None:
            self._journal.timers.pop(number, None)
            with self._journal.received("timer", timer=number):
                callable(*args, **kwargs)

        timer = self._call_later(delay, fired)
        self._journal.timer_set(number, timer)
        return timer


class RecordedRandom(Random):
    """Records the random bits, from which all other methods of ``Random`` derive their results."""

    def __init__(self, random: Random, journal: Journal) -> None:
        super().__init__(0)
        self._drawn = random
        self._journal = journal

    def getrandbits(self, k: int, /) -> int:
        return self._journal.read("random_bits", self._drawn.getrandbits(k))

    def random(self) -> float:
        return self.getrandbits(53) / 2**53


class RecordedLoop:
    """Records when a long loop yields and resumes."""

    def __init__(self, loop: LongLoop, journal: Journal) -> None:
        self._loop = loop
        self._journal = journal

    @property
    def is_over(self) -> bool:
        return self._loop.is_over

    def next(self) -> Deferred[None]:
        return self._journal.operation("turn", self._loop.next)


def recorded_config(config: ControllerConfig, journal: Journal) -> ControllerConfig:
    """Return a configuration that records changed topic configurations."""

    def unclean_allowed(topic: str) -> bool:
        return journal.read_known("unclean_allowed", config.unclean_allowed(topic), topic)

    def min_insync_replicas(topic: str) -> int:
        return journal.read_known("min_insync_replicas", config.min_insync_replicas(topic), topic)

    async def read_topic_settings(topics: Sequence[str]) -> None:
        await journal.operation(
            "learn", lambda: Deferred.fromCoroutine(config.read_topic_settings(topics)), topics=list(topics)
        )

    return replace(
        config,
        unclean_allowed=unclean_allowed,
        min_insync_replicas=min_insync_replicas,
        read_topic_settings=read_topic_settings,
    )


class RecordedClient:
    """Records operations, responses, watch events and session events."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client = client
        self._journal = journal

    @property
    def session_id(self) -> int:
        return self._journal.read_known("session_id", self._client.session_id)

    @property
    def last_zxid(self) -> int:
        return self._journal.read("last_zxid", self._client.last_zxid)

    def on_session_event(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        def changed(state: SessionState) -> None:
            if state.ended:
                self._journal.watches.clear()
            with self._journal.received("session", state=state.name):
                listener(state)

        return self._client.on_session_event(changed)

    def exists(self, path: str, watch: Watcher | None = None) -> Deferred[Stat | None]:
        return self._read("exists", path, watch)

    def get_data(self, path: str, watch: Watcher | None = None) -> Deferred[tuple[bytes, Stat]]:
        return self._read("get_data", path, watch)

    def get_children(self, path: str, watch: Watcher | None = None) -> Deferred[list[str]]:
        return self._read("get_children", path, watch)

    def _read(self, name: str, path: str, watch: Watcher | None) -> Deferred[Any]:
        read = getattr(self._client, name)
        if watch is None:
            return self._journal.operation(name, lambda: read(path), path=path)
        number = self._journal.numbers.get("op", 0) + 1
        listener = self.watcher(number, watch)
        return self._journal.operation(name, lambda: read(path, listener), path=path, watch=True)

    def watcher(self, number: int, listener: Watcher) -> Watcher:
        """Wrap the watch that an operation of that number sets."""
        self._journal.watches[number] = listener

        def fired(event: WatchEvent) -> None:
            self._journal.watches.pop(number, None)
            with self._journal.received("watch", op=number, event=encode_watch_event(event)):
                listener(event)

        return fired

    def create(self, path: str, data: bytes = b"") -> Deferred[Created]:
        data_text = data.decode()
        return self._journal.operation("create", lambda: self._client.create(path, data), path=path, data=data_text)

    def delete(self, path: str, version: int = -1) -> Deferred[None]:
        return self._journal.operation(
            "delete", lambda: self._client.delete(path, version), path=path, version=version
        )

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        return self._journal.operation(
            "multi",
            lambda: self._client.multi(operations),
            len(operations),
            operations=DeferredJson(encode_operations, operations),
        )

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        return self._journal.operation(
            "multi_read", lambda: self._client.multi_read(reads), len(reads), reads=DeferredJson(encode_reads, reads)
        )


# --- brokers ----------------------------------------------------------------------------------------------------------


def connect(
    inner: Connect,
    journal: Journal,
    registration: BrokerRegistration,
    endpoint: Endpoint,
    *,
    answered: ResponseCallback,
    overflowed: Callable[[int], None],
    sent: Callable[[Command, dict[str, Any]], None],
    late: Callable[[int, Command], None],
    **arguments: Any,
) -> RecordedChannel:
    """Open a channel whose commands and responses are recorded."""
    number = journal.next_number("channel")
    broker, epoch = registration.broker_id, registration.epoch
    journal.note({"out": "open", "channel": number, "broker": broker, "epoch": epoch, "endpoint": str(endpoint)})
    channel = RecordedChannel(journal, number)

    def on_answered(broker_id: int, command: Command, answer: CommandResponse) -> None:
        command_number, rejections = channel.commands.pop(command, None), encode_rejections(answer.partition_errors)
        if command_number is None:
            answered(broker_id, command, answer)  # the command was dropped by an overflow
            return
        with journal.received("answered", command=command_number, error=answer.error.name, refusals=rejections):
            answered(broker_id, command, answer)

    def on_overflowed(broker_id: int) -> None:
        channel.commands.clear()
        channel.unsent.clear()
        with journal.received("overflowed", channel=number):
            overflowed(broker_id)

    def on_sent(command: Command, body: dict[str, Any]) -> None:
        command_number, size = channel.unsent.pop(command, None), body["topic_states"].size
        if command_number is None:
            sent(command, body)  # a retry, or dropped by an overflow
            return
        with journal.received("sent", size // 100, command=command_number, bytes=size, crc=DeferredJson(digest, body)):
            sent(command, body)

    def on_late(broker_id: int, command: Command) -> None:
        with journal.received("late", command=channel.commands.get(command)):
            late(broker_id, command)

    channel.inner = inner(
        registration,
        endpoint,
        answered=on_answered,
        overflowed=on_overflowed,
        sent=on_sent,
        late=on_late,
        **arguments,
    )
    return channel


class RecordedChannel:
    """Records the commands sent through it.

    :ivar commands: numbers of the commands without a response.
    :ivar unsent: numbers of the commands that were never sent.
    """

    inner: Channel

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self.number = number
        self.commands: dict[Command, int] = {}
        self.unsent: dict[Command, int] = {}

    def send(self, command: Command) -> None:
        number = self._journal.next_number("command")
        self.commands[command] = self.unsent[command] = number
        self._journal.note(
            {
                "out": "command",
                "command": number,
                "channel": self.number,
                "api": command.api.name,
                "epoch": command.broker_epoch,
                "delete": command.delete,
                "partitions": DeferredJson(encode_runs, command.partitions),
            }
        )
        self.inner.send(command)

    def close(self) -> Coroutine[Any, Any, None]:
        self._journal.note({"out": "close", "channel": self.number})
        return self.inner.close()
