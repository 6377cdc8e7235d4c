"""epoll loop that dispatches reads without Twisted's per-event log context.

Twisted's loop enters a log context and checks the descriptor for each event, which is a noticeable part of the cost of
a small request. This loop calls ``doRead`` directly if an event is only a read, and uses Twisted's code otherwise. Log
lines then have no connection prefix, so it is not used for several brokers in one process, which need the prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.python import log

_NEEDED = ("_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable", "_POLL_IN")
"""Private attributes of the reactor; if one is missing, Twisted's own loop stays in use."""


def install_lean_polling(reactor: Any) -> bool:
    """Install the loop in an epoll reactor, before or while it runs.

    :return: False if the reactor is of another kind and was not changed.
    """
    if type(reactor).__name__ != "EPollReactor" or not all(hasattr(reactor, name) for name in _NEEDED):
        return False
    reactor.doIteration = _iteration(reactor)
    return True


def _iteration(reactor: Any) -> Callable[[float | None], None]:
    poll, selectables, reading = reactor._poller.poll, reactor._selectables, reactor._POLL_IN

    def iterate(timeout_s: float | None) -> None:
        for descriptor, event in poll(-1 if timeout_s is None else timeout_s, len(selectables)):
            selectable = selectables.get(descriptor)
            if selectable is None:
                continue  # closed while an earlier event was handled
            if event != reading:
                log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, descriptor, event)
                continue
            try:
                why = selectable.doRead()
            except BaseException as error:  # as in Twisted: an error ends only this connection
                why = error
                log.err()
            if why:
                reactor._disconnectSelectable(selectable, why, True)

    return iterate
