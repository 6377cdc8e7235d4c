"""Header of a journal file: configuration and complete state of the controller, so that each file is self-contained.

A new file starts together with the controller, or while the controller is idle: no event is waiting or being handled,
and no operation is in progress.  The state consists of the context, the pending timers and watches, and the commands
without a response.  Some keys (such as ``office``, the term) have old names, because they are part of the file format.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import fields
from typing import Any, TypeVar

from kreplica import __version__
from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import ControllerDependencies
from kreplica.controller.journal.context_json import copy_context, encode_context
from kreplica.controller.journal.lines import FORMAT
from kreplica.controller.journal.recorder import Entry, Journal
from kreplica.controller.journal.recording_proxies import RecordedChannel
from kreplica.controller.journal.value_json import DeferredJson, Json, encode_event, encode_runs
from kreplica.controller.term import ControllerTerm, Watcher

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A long computation in steps of less than a millisecond; the controller must not change between them."""

WATCHES_STEP = 100
"""Number of watches encoded in one step."""


def file_header(dependencies: ControllerDependencies, state: Json = None) -> Entry:
    """Return the header of a journal file.

    :param state: None before the controller has started.
    """
    config = dependencies.config
    return {
        "journal": FORMAT,
        "kreplica": __version__,
        "broker": config.broker_id,
        "wall_clock_ms": dependencies.runtime.wall_clock_ms(),
        "s": round(dependencies.runtime.reactor.seconds(), 6),
        "config": {each.name: value for each in fields(config) if not callable(value := getattr(config, each.name))},
        "state": state,
    }


def is_idle(controller: Controller, journal: Journal) -> bool:
    """Return True if the controller is idle, so that a new file may start."""
    return controller.queue.idle_for_an_iteration and not journal.outstanding and not controller._stopped


def run_to_completion(steps: Steps[T]) -> T:
    """Run all steps without yielding, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def state_of(controller: Controller, journal: Journal) -> Steps[Entry]:
    """Return the state of an idle controller; values that are slow to encode are wrapped in ``DeferredJson``."""
    term, timers = controller._term, {id(timer): number for number, timer in journal.timers.items()}
    retry = controller._retry
    watches = yield from _watches_of(controller, journal)
    term_json = None if term is None else (yield from _term_json(term, timers))
    return {
        "numbers": dict(journal.numbers),
        "controller_id": controller.election.controller_id,
        "commands_count": controller._commands_count,
        "is_watching": controller.election._is_watching,
        "retry_s": controller._retry_seconds,
        "retry": timers.get(id(retry)) if retry is not None and retry.active() else None,
        "has_given_up": controller.election._has_given_up,
        "is_paused": controller.queue._paused,
        "watches": watches,
        "office": term_json,
    }


def _watches_of(controller: Controller, journal: Journal) -> Steps[list[Json]]:
    rows: list[Json] = []
    for number in sorted(journal.watches):
        rows.append(_watch_of(controller, number, journal.watches[number]))
        if not len(rows) % WATCHES_STEP:
            yield
    return rows


def _watch_of(controller: Controller, number: int, listener: object) -> Json:
    if not isinstance(listener, Watcher):
        return {"op": number}
    term = controller._term
    return {
        "op": number,
        "path": listener.path,
        "event": encode_event(listener.event),
        "ignored": None if listener.ignored is None else listener.ignored.name,
        "is_present": term is not None and listener.watched is term._watched,
    }


def _term_json(term: ControllerTerm, timers: dict[int, int]) -> Steps[Json]:
    channels: list[Json] = []
    for broker, channel in term._channels.items():
        channels.append([broker, _channel_of(channel)])
        yield
    context = yield from copy_context(term.context)
    return {
        "context": DeferredJson(encode_context, context),
        "untold": sorted(term.outdated_brokers),
        "noted_epochs": list(term.stored_epochs.items()),
        "watched": sorted(term._watched),
        "timers": [[timers[id(timer)], encode_event(event)] for event, timer in term._timers.items()],
        "channels": channels,
    }


def _channel_of(channel: Any) -> Json:
    assert isinstance(channel, RecordedChannel)
    return {
        "channel": channel.number,
        "commands": [
            {
                "command": number,
                "api": command.api.name,
                "epoch": command.broker_epoch,
                "delete": command.delete,
                "partitions": DeferredJson(encode_runs, command.partitions),
                "is_sent": command not in channel.unsent,
            }
            for command, number in channel.commands.items()
        ],
    }
