"""Dependencies of a controller that repeats a run; all its inputs come from a journal, in the recorded order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from random import Random
from typing import Any, cast

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import Client, ControllerConfig, ControllerDependencies, Watcher
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.event_types import ControllerRequest
from kreplica.controller.journal.lines import EntryFields
from kreplica.controller.journal.value_json import (
    decode_command_response,
    decode_error,
    decode_event,
    decode_response,
    decode_watch_event,
)
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.runtime import Reactor, Runtime
from kreplica.testing.replay.script import Script
from kreplica.zookeeper import SessionState

log = Logger()

INPUTS = (
    "answer",
    "answered",
    "asked",
    "call",
    "late",
    "overflowed",
    "sent",
    "session",
    "timer",
    "watch",
    "withdrawn",
)
"""Kinds of input entries; each has a method of ``ReplayEnvironment``."""

BROKER_CALLS = ("start", "stand_for_election", "topic_settings_changed", "stop")
"""Methods of a controller that its broker calls."""


class ReplayEnvironment:
    """Environment for one file of a journal.

    :ivar controller: must be set before ``perform`` is called.
    :ivar commands: commands without a response and their channels, by number.
    """

    controller: Controller

    def __init__(self, script: Script, config: Mapping[str, Any]) -> None:
        self.script = script
        script.perform_nested = self.perform_nested
        self.now_s = 0.0
        self.timers: dict[int, DelayedCall] = {}
        self.pending_responses: dict[int, Deferred[Any]] = {}
        self.watches: dict[int, Watcher] = {}
        self.session_listeners: list[Callable[[SessionState], None]] = []
        self.channels: dict[int, ReplayChannel] = {}
        self.commands: dict[int, tuple[ReplayChannel, Command]] = {}
        self._questions: dict[int, ControllerRequest] = {}
        self._cached_values: dict[tuple[str, str | None], Any] = {}
        self.dependencies = self._dependencies(config)

    def _dependencies(self, config: Mapping[str, Any]) -> ControllerDependencies:
        runtime = Runtime(
            reactor=cast(Reactor, ReplayReactor(self)),
            disk=cast(Any, None),
            offload=cast(Any, None),
            random=ReplayRandom(self),
            wall_clock_ms=lambda: int(self.script.value("wall_clock_ms", None, 0)),
        )
        field_names = {field.name for field in fields(ControllerConfig)}

        async def read_topic_settings(_: Sequence[str]) -> None:
            await self.operation()

        return ControllerDependencies(
            runtime,
            cast(Client, ReplayClient(self)),
            ControllerConfig(
                **{name: value for name, value in config.items() if name in field_names},
                unclean_allowed=lambda topic: bool(self.cached_value("unclean_allowed", topic, False)),
                min_insync_replicas=lambda topic: int(self.cached_value("min_insync_replicas", topic, 1)),
                read_topic_settings=read_topic_settings,
            ),
            now_s=lambda: float(self.script.value("now_s", None, 0.0)),
            long_loop=lambda: ReplayLoop(self),
            connect=self.connect,
        )

    # --- calls of the controller -------------------------------------------------------------------------------------

    def cached_value(self, name: str, key: str | None, default: Any) -> Any:
        """Return a value that the journal records only when it changes."""
        value = self.script.value(name, key, self._cached_values.get((name, key), default))
        self._cached_values[name, key] = value
        return value

    def operation(self, watch: Watcher | None = None) -> Deferred[Any]:
        """Register the operation of the last entry; it completes at once if the recorded operation did."""
        number = self.script.last.get("op", 0)
        answer: Deferred[Any] = Deferred()
        self.pending_responses[number] = answer
        if watch is not None:
            self.watches[number] = watch
        while (line := self.script.nested) is not None:
            if line["in"] == "answer":
                if line["op"] == number:
                    self._answer(line)
                break
            self.perform(line)
        return answer

    def connect(self, registration: BrokerRegistration, endpoint: Endpoint, **callbacks: Any) -> ReplayChannel:
        channel = ReplayChannel(self, registration.broker_id, callbacks)
        self.channels[self.script.last["channel"]] = channel
        return channel

    # --- inputs ------------------------------------------------------------------------------------------------------

    def perform_nested(self) -> None:
        """Perform the inputs that arrived while the controller was running."""
        while (line := self.script.nested) is not None and line["in"] != "answer":
            self.perform(line)

    def perform(self, line: EntryFields) -> None:
        """Pass an input to the controller."""
        position = self.script.position
        self.now_s = line.get("s", self.now_s)
        if line["in"] in INPUTS:
            getattr(self, f"_{line['in']}")(line)
        if self.script.position == position:
            self.script.no_output()

    def _call(self, line: EntryFields) -> None:
        if line["method"] not in BROKER_CALLS:
            raise LookupError(f"brokers do not call {line['method']}")
        result = getattr(self.controller, line["method"])()
        if isinstance(result, Coroutine):
            Deferred.fromCoroutine(result).addErrback(lambda failure: log.failure("repeating a call", failure))

    def _asked(self, line: EntryFields) -> None:
        question = decode_event(line["event"])
        assert isinstance(question, ControllerRequest)
        self._questions[line["question"]] = question
        self.controller.submit(question).addErrback(lambda _: None)

    def _withdrawn(self, line: EntryFields) -> None:
        self._questions[line["question"]].response.cancel()

    def _answer(self, line: EntryFields) -> None:
        answer = self.pending_responses.pop(line["op"], None)
        if answer is not None and "error" in line:
            answer.errback(Failure(decode_error(line["error"])))
        elif answer is not None:
            answer.callback(decode_response(line["of"], line["value"]))

    def _watch(self, line: EntryFields) -> None:
        watch = self.watches.pop(line["op"], None)
        if watch is not None:
            watch(decode_watch_event(line["event"]))

    def _session(self, line: EntryFields) -> None:
        for listener in list(self.session_listeners):
            listener(SessionState[line["state"]])

    def _timer(self, line: EntryFields) -> None:
        timer = self.timers.pop(line["timer"], None)
        if timer is not None and timer.active():
            timer.called = 1
            timer.func(*timer.args, **timer.kw)

    def _sent(self, line: EntryFields) -> None:
        channel, command = self.commands.get(line["command"], (None, None))
        if channel is not None and command is not None:
            body = _result(Deferred.fromCoroutine(command.build_body(self.dependencies.runtime.reactor)))
            channel.call("sent", command, body)

    def _answered(self, line: EntryFields) -> None:
        channel, command = self.commands.pop(line["command"], (None, None))
        if channel is not None and command is not None:
            answer = decode_command_response(line["error"], line["refusals"])
            try:
                channel.call("answered", channel.broker_id, command, answer)
            except Exception:
                log.failure("cannot handle a broker's response")  # as in a channel

    def _late(self, line: EntryFields) -> None:
        channel, command = self.commands.get(line["command"], (None, None))
        if channel is not None and command is not None:
            channel.call("late", channel.broker_id, command)

    def _overflowed(self, line: EntryFields) -> None:
        channel = self.channels.get(line["channel"])
        if channel is not None:
            channel.call("overflowed", channel.broker_id)


def _result(deferred: Deferred[Any]) -> Any:
    """Return the result of a Deferred that has fired."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    if isinstance(results[0], Failure):
        results[0].raiseException()
    return results[0]


class ReplayReactor:
    """Reactor whose timers fire at the recorded entries."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        self._environment = environment

    def seconds(self) -> float:
        return self._environment.now_s

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall:
        environment = self._environment
        timer = DelayedCall(environment.now_s + delay, callable, args, kwargs, _nothing, _nothing, self.seconds)
        environment.timers[environment.script.last.get("timer", 0)] = timer
        return cast(IDelayedCall, timer)


def _nothing(_: object) -> None:
    return


class ReplayRandom(Random):
    """Returns the recorded random numbers."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        super().__init__(0)
        self._environment = environment

    def getrandbits(self, k: int, /) -> int:
        return int(self._environment.script.value("random_bits", None, 0))

    def random(self) -> float:
        return self.getrandbits(53) / 2**53


class ReplayLoop:
    """Loop that yields to the reactor at the recorded iterations."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        self._environment = environment

    @property
    def is_over(self) -> bool:
        line = self._environment.script.next
        return line is not None and line.get("out") == "turn"

    def next(self) -> Deferred[None]:
        return self._environment.operation()


class ReplayClient:
    """ZooKeeper client that returns the recorded responses."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        self._environment = environment

    @property
    def session_id(self) -> int:
        return int(self._environment.cached_value("session_id", None, 0))

    @property
    def last_zxid(self) -> int:
        return int(self._environment.script.value("last_zxid", None, 0))

    def on_session_event(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        self._environment.session_listeners.append(listener)
        return lambda: self._environment.session_listeners.remove(listener)

    def exists(self, path: str, watch: Watcher | None = None) -> Deferred[Any]:
        return self._environment.operation(watch)

    get_data = get_children = exists

    def create(self, path: str, data: bytes) -> Deferred[Any]:
        return self._environment.operation()

    def delete(self, path: str, version: int) -> Deferred[Any]:
        return self._environment.operation()

    def multi(self, operations: Sequence[object]) -> Deferred[Any]:
        return self._environment.operation()

    multi_read = multi


class ReplayChannel:
    """Channel to a broker that calls its callbacks as recorded."""

    def __init__(
        self, environment: ReplayEnvironment, broker_id: int, callbacks: Mapping[str, Callable[..., None]]
    ) -> None:
        self._environment = environment
        self._callbacks = callbacks
        self.broker_id = broker_id

    def send(self, command: Command) -> None:
        self._environment.commands[self._environment.script.last.get("command", 0)] = (self, command)
        self._environment.perform_nested()

    async def close(self) -> None:
        return

    def call(self, name: str, *arguments: object) -> None:
        self._callbacks[name](*arguments)
