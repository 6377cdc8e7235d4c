"""Restores a controller's state from the snapshot at the start of a journal's file."""

from __future__ import annotations

from typing import Any

from kreplica.controller.controller import Controller
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.journal.context_json import decode_context
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.recording_proxies import RecordedChannel, RecordedClient
from kreplica.controller.journal.value_json import decode_event, decode_runs
from kreplica.controller.term import ControllerTerm, Watcher
from kreplica.runtime import Reactor
from kreplica.testing.replay.environment import ReplayEnvironment
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kreplica.wire.primitives import PrebuiltElements
from kreplica.zookeeper import EventType

COMMANDS = {api.name: api for api in (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)}


class InitialState:
    """Sets the state of a new controller, and registers its pending operations with the environment.

    The script is muted during this, because these entries do not belong to the run.
    """

    def __init__(self, environment: ReplayEnvironment, journal: Journal, state: dict[str, Any]) -> None:
        self._environment = environment
        self._controller: Controller = environment.controller
        self._journal = journal
        self._state = state

    def restore(self) -> None:
        controller, state = self._controller, self._state
        controller._forget_listener = controller._client.on_session_event(controller._session_changed)
        controller.election.controller_id = state["controller_id"]
        controller._commands_count = state["commands_count"]
        controller.election._is_watching = state["is_watching"]
        controller._retry_seconds = state["retry_s"]
        controller.election._has_given_up = state.get("has_given_up", False)
        controller.queue._paused = state["is_paused"]
        if state["retry"] is not None:
            self._set_next_number("timer", state["retry"])
            controller._retry = controller._reactor.callLater(0, controller._queue_election_check)
        if state["office"] is not None:
            controller._term = self._term(state["office"])
        for watch in state["watches"]:
            self._watch(watch)
        self._journal.numbers = dict(state["numbers"])

    def _set_next_number(self, kind: str, number: int) -> None:
        """Set the number that the journal assigns to the next object of this kind."""
        self._journal.numbers[kind] = number - 1

    def _term(self, row: dict[str, Any]) -> ControllerTerm:
        controller = self._controller
        context = decode_context(row["context"])
        term = ControllerTerm(
            controller._dependencies, context, controller.queue, controller.counters, controller.history
        )
        term.outdated_brokers.update(row["untold"])
        term.stored_epochs = dict(row["noted_epochs"])
        term._watched.update(row["watched"])
        for number, event in row["timers"]:
            self._set_next_number("timer", number)
            term.put_later(decode_event(event), 0)
        for broker, channel in row["channels"]:
            self._set_next_number("channel", channel["channel"])
            term.open_channel(context.brokers[broker])
            recorded = term._channels[broker]
            assert isinstance(recorded, RecordedChannel)
            for command in channel["commands"]:
                self._command(recorded, command)
        return term

    def _command(self, channel: RecordedChannel, row: dict[str, Any]) -> None:
        """Restore a command without a response; its body is unknown."""
        number = row["command"]
        partitions = tuple(decode_runs(row["partitions"]))
        command = Command(COMMANDS[row["api"]], partitions, _unknown, row["epoch"], row["delete"])
        channel.commands[command] = number
        if not row["is_sent"]:
            channel.unsent[command] = number
        self._environment.commands[number] = (self._environment.channels[channel.number], command)
        self._environment.script.unknown_bodies = [*self._environment.script.unknown_bodies, number]

    def _watch(self, row: dict[str, Any]) -> None:
        controller, client = self._controller, self._controller._client
        assert isinstance(client, RecordedClient)
        listener: Any = controller.election.changed
        if "path" in row:
            term = controller._term
            watched = term._watched if term is not None and row["is_present"] else set()
            ignored = None if row["ignored"] is None else EventType[row["ignored"]]
            listener = Watcher(row["path"], decode_event(row["event"]), ignored, watched, controller.queue.put)
        self._environment.watches[row["op"]] = client.watcher(row["op"], listener)


async def _unknown(_: Reactor) -> dict[str, Any]:
    return {"topic_states": PrebuiltElements(0, ())}
