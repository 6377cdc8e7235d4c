"""epoll loop that dispatches reads without Twisted's per-event log context.

Twisted's loop enters a log context and checks the descriptor for each event, which is a noticeable part of the cost of
a small request. This loop calls ``doRead`` directly if an event is only a read, and uses Twisted's code otherwise. Log
lines then have no connection prefix, so it is not used for several brokers in one process, which need the prefix.

Optionally the loop polls without sleeping for a short time before it waits (busy polling). An event then needs no
wake-up of the process, and finds its code and data in the CPU caches; but the loop uses a whole core under load.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from twisted.python import log

_NEEDED = ("_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable", "_POLL_IN")
"""Private attributes of the reactor; if one is missing, Twisted's own loop stays in use."""


SPIN_SHARE_MIN = 1 / 8
"""Fraction of the maximum time below which busy polling is suspended."""

Poll = Callable[[float, int], list[tuple[int, int]]]
"""Waits for events: a timeout in seconds, or -1, and a maximum number of events."""


def install_lean_polling(reactor: Any, busy_poll_s: float = 0.0) -> bool:
    """Install the loop in an epoll reactor, before or while it runs.

    :param busy_poll_s: maximum time of busy polling before each wait; 0 for none.
    :return: False if the reactor is of another kind and was not changed.
    """
    if type(reactor).__name__ != "EPollReactor" or not all(hasattr(reactor, name) for name in _NEEDED):
        return False
    poll: Poll = reactor._poller.poll
    reactor.doIteration = _iteration(reactor, busy_polling(poll, busy_poll_s, monotonic) if busy_poll_s > 0 else poll)
    return True


def busy_polling(poll: Poll, limit_s: float, seconds: Callable[[], float]) -> Poll:
    """Return a function that polls without sleeping for up to ``limit_s`` before it waits.

    It adapts to the load: each wait that lasts longer than the limit halves the time, down to none, and a wait that
    ends within the limit restores it.

    :param seconds: monotonic clock.
    """
    spin_s = limit_s

    def wait(timeout_s: float, count: int) -> list[tuple[int, int]]:
        nonlocal spin_s
        begin_s = now_s = seconds()
        until_s = begin_s + (spin_s if timeout_s < 0 else min(spin_s, timeout_s))
        while now_s < until_s:
            if events := poll(0, count):
                return events
            now_s = seconds()
        events = poll(timeout_s if timeout_s < 0 else max(timeout_s - (now_s - begin_s), 0), count)
        if seconds() - begin_s <= limit_s:
            spin_s = limit_s
        else:
            spin_s = spin_s / 2 if spin_s > limit_s * SPIN_SHARE_MIN else 0.0
        return events

    return wait


def _iteration(reactor: Any, poll: Poll) -> Callable[[float | None], None]:
    selectables, reading = reactor._selectables, reactor._POLL_IN

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
