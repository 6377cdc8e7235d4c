"""The head of a journal's file: whose it is, and where its controller stands, so that the file can be read alone.

A file begins with the controller, or at a moment when it rests: no event waits or is handled, no operation is under
way.  What it is then, is here: what it knows, which timers and watches will reach it, which commands were not answered.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import fields
from typing import Any, TypeVar

from kreplica import __version__
from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import Surroundings
from kreplica.controller.journal.context_json import copy_context, encode_context
from kreplica.controller.journal.lines import FORMAT
from kreplica.controller.journal.recorder import Entry, Journal
from kreplica.controller.journal.recording_proxies import RecordedChannel
from kreplica.controller.journal.value_json import Json, Later, encode_event, encode_runs
from kreplica.controller.term import Office, Watcher

T = TypeVar("T")

Steps = Generator[None, None, T]
"""What takes long, in steps of less than a millisecond between which nothing may change."""

WATCHES_STEP = 100
"""So many watches are told of in one step."""


def head(surroundings: Surroundings, state: Json = None) -> Entry:
    """
    :param state: None where the controller has not started yet.
    """
    config = surroundings.config
    return {
        "journal": FORMAT,
        "kreplica": __version__,
        "broker": config.broker_id,
        "wall_clock_ms": surroundings.runtime.wall_clock_ms(),
        "s": round(surroundings.runtime.reactor.seconds(), 6),
        "config": {each.name: value for each in fields(config) if not callable(value := getattr(config, each.name))},
        "state": state,
    }


def is_at_rest(controller: Controller, journal: Journal) -> bool:
    """Whether a file may begin here."""
    return controller.queue.at_rest and not journal.outstanding and not controller._stopped


def at_once(steps: Steps[T]) -> T:
    """All of them, where nobody waits for a turn."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def state_of(controller: Controller, journal: Journal) -> Steps[Entry]:
    """Where a controller that rests stands; what takes long to encode is ``Later``."""
    office, timers = controller._office, {id(timer): number for number, timer in journal.timers.items()}
    retry = controller._retry
    watches = yield from _watches_of(controller, journal)
    told = None if office is None else (yield from _office_of(office, timers))
    return {
        "numbers": dict(journal.numbers),
        "controller_id": controller.controller_id,
        "commands_count": controller._commands_count,
        "is_watching": controller._watches,
        "retry_s": controller._retry_seconds,
        "retry": timers.get(id(retry)) if retry is not None and retry.active() else None,
        "is_paused": controller.queue._paused,
        "watches": watches,
        "office": told,
    }


def _watches_of(controller: Controller, journal: Journal) -> Steps[list[Json]]:
    told: list[Json] = []
    for number in sorted(journal.watches):
        told.append(_watch_of(controller, number, journal.watches[number]))
        if not len(told) % WATCHES_STEP:
            yield
    return told


def _watch_of(controller: Controller, number: int, listener: object) -> Json:
    if not isinstance(listener, Watcher):
        return {"op": number}
    office = controller._office
    return {
        "op": number,
        "path": listener.path,
        "event": encode_event(listener.event),
        "ignored": None if listener.ignored is None else listener.ignored.name,
        "is_present": office is not None and listener.watched is office._watched,
    }


def _office_of(office: Office, timers: dict[int, int]) -> Steps[Json]:
    channels: list[Json] = []
    for broker, channel in office._channels.items():
        channels.append([broker, _channel_of(channel)])
        yield
    context = yield from copy_context(office.context)
    return {
        "context": Later(encode_context, context),
        "untold": sorted(office.untold),
        "noted_epochs": list(office.noted_epochs.items()),
        "watched": sorted(office._watched),
        "timers": [[timers[id(timer)], encode_event(event)] for event, timer in office._timers.items()],
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
                "partitions": Later(encode_runs, command.what),
                "is_sent": command not in channel.unsent,
            }
            for command, number in channel.commands.items()
        ],
    }
