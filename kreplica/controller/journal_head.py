"""The head of a journal's file: whose it is, and where its controller stands, so that the file can be read alone.

A file begins with the controller, or at a moment when it rests: no event waits or is handled, no operation is under
way.  What it is then, is here: what it knows, which timers and watches will reach it, which commands were not answered.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kreplica import __version__
from kreplica.controller.controller import Controller
from kreplica.controller.journal import Entry, Journal
from kreplica.controller.journal_context import copy_context, encode_context
from kreplica.controller.journal_lines import FORMAT
from kreplica.controller.journal_seams import RecordedChannel
from kreplica.controller.journal_values import Json, Later, encode_event, encode_runs
from kreplica.controller.office import Office, Watcher
from kreplica.controller.surroundings import Surroundings


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


def state_of(controller: Controller, journal: Journal) -> Json:
    """Where a controller that rests stands; what takes long to encode is ``Later``."""
    office, timers = controller._office, {id(timer): number for number, timer in journal.timers.items()}
    retry = controller._retry
    return {
        "numbers": dict(journal.numbers),
        "controller_id": controller.controller_id,
        "is_watching": controller._watches,
        "retry_s": controller._retry_seconds,
        "retry": timers.get(id(retry)) if retry is not None and retry.active() else None,
        "is_paused": controller.queue._paused,
        "watches": [_watch_of(controller, number, each) for number, each in sorted(journal.watches.items())],
        "office": None if office is None else _office_of(office, timers),
    }


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


def _office_of(office: Office, timers: dict[int, int]) -> Json:
    return {
        "context": Later(encode_context, copy_context(office.context)),
        "untold": sorted(office.untold),
        "noted_epochs": list(office.noted_epochs.items()),
        "watched": sorted(office._watched),
        "timers": [[timers[id(timer)], encode_event(event)] for event, timer in office._timers.items()],
        "channels": [[broker, _channel_of(channel)] for broker, channel in office._channels.items()],
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
