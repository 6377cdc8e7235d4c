"""The surroundings of a controller that repeats a run: whatever reaches it is what a journal says, in that order."""

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
from kreplica.controller.event_types import Question
from kreplica.controller.journal.lines import Line
from kreplica.controller.journal.value_json import (
    decode_answer,
    decode_command_answer,
    decode_error,
    decode_event,
    decode_watch_event,
)
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.runtime import Reactor, Runtime
from kreplica.testing.replay.script import Script
from kreplica.zookeeper import SessionState

log = Logger()

HEARD = (
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
"""Kinds of entries that reach a controller, each with a method of the world."""

CALLED = ("start", "stand_for_election", "topic_settings_changed", "stop")
"""Methods of a controller that its broker calls."""


class ReplayWorld:
    """Made for one journal's file.

    :ivar controller: to be set before anything is performed.
    :ivar commands: by number, those that were not answered, and the channel of each.
    """

    controller: Controller

    def __init__(self, script: Script, config: Mapping[str, Any]) -> None:
        self.script = script
        script.perform_nested = self.perform_nested
        self.now_s = 0.0
        self.timers: dict[int, DelayedCall] = {}
        self.answers: dict[int, Deferred[Any]] = {}
        self.watches: dict[int, Watcher] = {}
        self.session_listeners: list[Callable[[SessionState], None]] = []
        self.channels: dict[int, ReplayChannel] = {}
        self.commands: dict[int, tuple[ReplayChannel, Command]] = {}
        self._questions: dict[int, Question] = {}
        self._known: dict[tuple[str, str | None], Any] = {}
        self.dependencies = self._dependencies(config)

    def _dependencies(self, config: Mapping[str, Any]) -> ControllerDependencies:
        runtime = Runtime(
            reactor=cast(Reactor, ReplayReactor(self)),
            disk=cast(Any, None),
            offload=cast(Any, None),
            random=ReplayRandom(self),
            wall_clock_ms=lambda: int(self.script.value("wall_clock_ms", None, 0)),
        )
        known = {each.name for each in fields(ControllerConfig)}

        async def learn(_: Sequence[str]) -> None:
            await self.operation()

        return ControllerDependencies(
            runtime,
            cast(Client, ReplayClient(self)),
            ControllerConfig(
                **{name: value for name, value in config.items() if name in known},
                unclean_allowed=lambda topic: bool(self.known_value("unclean_allowed", topic, False)),
                min_insync_replicas=lambda topic: int(self.known_value("min_insync_replicas", topic, 1)),
                learn=learn,
            ),
            now_s=lambda: float(self.script.value("now_s", None, 0.0)),
            long_loop=lambda: ReplayLoop(self),
            connect=self.connect,
        )

    # --- what the controller asks for --------------------------------------------------------------------------------

    def known_value(self, what: str, of: str | None, default: Any) -> Any:
        """A value that the journal has only where it is another than before."""
        value = self.script.value(what, of, self._known.get((what, of), default))
        self._known[what, of] = value
        return value

    def operation(self, watch: Watcher | None = None) -> Deferred[Any]:
        """One that was just noted; it is answered at once where it was."""
        number = self.script.last.get("op", 0)
        answer: Deferred[Any] = Deferred()
        self.answers[number] = answer
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

    # --- what reaches it ---------------------------------------------------------------------------------------------

    def perform_nested(self) -> None:
        """All that reached the controller in the middle of what it just did."""
        while (line := self.script.nested) is not None and line["in"] != "answer":
            self.perform(line)

    def perform(self, line: Line) -> None:
        """Let this reach the controller."""
        before = self.script.position
        self.now_s = line.get("s", self.now_s)
        if line["in"] in HEARD:
            getattr(self, f"_{line['in']}")(line)
        if self.script.position == before:
            self.script.did_nothing()

    def _call(self, line: Line) -> None:
        if line["method"] not in CALLED:
            raise LookupError(f"brokers do not call {line['method']}")
        result = getattr(self.controller, line["method"])()
        if isinstance(result, Coroutine):
            Deferred.fromCoroutine(result).addErrback(lambda failure: log.failure("repeating a call", failure))

    def _asked(self, line: Line) -> None:
        question = decode_event(line["event"])
        assert isinstance(question, Question)
        self._questions[line["question"]] = question
        self.controller.ask(question).addErrback(lambda _: None)

    def _withdrawn(self, line: Line) -> None:
        self._questions[line["question"]].answer.cancel()

    def _answer(self, line: Line) -> None:
        answer = self.answers.pop(line["op"], None)
        if answer is not None and "error" in line:
            answer.errback(Failure(decode_error(line["error"])))
        elif answer is not None:
            answer.callback(decode_answer(line["of"], line["value"]))

    def _watch(self, line: Line) -> None:
        watch = self.watches.pop(line["op"], None)
        if watch is not None:
            watch(decode_watch_event(line["event"]))

    def _session(self, line: Line) -> None:
        for listener in list(self.session_listeners):
            listener(SessionState[line["state"]])

    def _timer(self, line: Line) -> None:
        timer = self.timers.pop(line["timer"], None)
        if timer is not None and timer.active():
            timer.called = 1
            timer.func(*timer.args, **timer.kw)

    def _sent(self, line: Line) -> None:
        channel, command = self.commands.get(line["command"], (None, None))
        if channel is not None and command is not None:
            body = _result(Deferred.fromCoroutine(command.form(self.dependencies.runtime.reactor)))
            channel.told("sent", command, body)

    def _answered(self, line: Line) -> None:
        channel, command = self.commands.pop(line["command"], (None, None))
        if channel is not None and command is not None:
            answer = decode_command_answer(line["error"], line["refusals"])
            try:
                channel.told("answered", channel.broker_id, command, answer)
            except Exception:
                log.failure("what a broker answered cannot be understood")  # as in a channel

    def _late(self, line: Line) -> None:
        channel, command = self.commands.get(line["command"], (None, None))
        if channel is not None and command is not None:
            channel.told("late", channel.broker_id, command)

    def _overflowed(self, line: Line) -> None:
        channel = self.channels.get(line["channel"])
        if channel is not None:
            channel.told("overflowed", channel.broker_id)


def _result(deferred: Deferred[Any]) -> Any:
    """Of one that has fired: where time stands still nothing has to wait."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


class ReplayReactor:
    """Timers that run out when the journal says so."""

    def __init__(self, world: ReplayWorld) -> None:
        self._world = world

    def seconds(self) -> float:
        return self._world.now_s

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall:
        world = self._world
        timer = DelayedCall(world.now_s + delay, callable, args, kwargs, _nothing, _nothing, self.seconds)
        world.timers[world.script.last.get("timer", 0)] = timer
        return cast(IDelayedCall, timer)


def _nothing(_: object) -> None:
    return


class ReplayRandom(Random):
    """Draws what was drawn."""

    def __init__(self, world: ReplayWorld) -> None:
        super().__init__(0)
        self._world = world

    def getrandbits(self, k: int, /) -> int:
        return int(self._world.script.value("random_bits", None, 0))

    def random(self) -> float:
        return self.getrandbits(53) / 2**53


class ReplayLoop:
    """Gives up its turn where the loop did."""

    def __init__(self, world: ReplayWorld) -> None:
        self._world = world

    @property
    def is_over(self) -> bool:
        line = self._world.script.next
        return line is not None and line.get("out") == "turn"

    def next(self) -> Deferred[None]:
        return self._world.operation()


class ReplayClient:
    """Answers as ZooKeeper did."""

    def __init__(self, world: ReplayWorld) -> None:
        self._world = world

    @property
    def session_id(self) -> int:
        return int(self._world.known_value("session_id", None, 0))

    def on_session_event(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        self._world.session_listeners.append(listener)
        return lambda: self._world.session_listeners.remove(listener)

    def exists(self, path: str, watch: Watcher | None = None) -> Deferred[Any]:
        return self._world.operation(watch)

    get_data = get_children = exists

    def create(self, path: str, data: bytes) -> Deferred[Any]:
        return self._world.operation()

    def delete(self, path: str, version: int) -> Deferred[Any]:
        return self._world.operation()

    def multi(self, operations: Sequence[object]) -> Deferred[Any]:
        return self._world.operation()

    multi_read = multi


class ReplayChannel:
    """Takes commands, and says of them what a broker's channel said."""

    def __init__(self, world: ReplayWorld, broker_id: int, callbacks: Mapping[str, Callable[..., None]]) -> None:
        self._world = world
        self._callbacks = callbacks
        self.broker_id = broker_id

    def send(self, command: Command) -> None:
        self._world.commands[self._world.script.last.get("command", 0)] = (self, command)
        self._world.perform_nested()

    async def close(self) -> None:
        return

    def told(self, name: str, *what: object) -> None:
        """Call what the channel was given."""
        self._callbacks[name](*what)
