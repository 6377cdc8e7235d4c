"""Reads without a detour: what Twisted's epoll reactor does for each event costs a part of what a small request does.

Stock, each event goes through a logging context and a check of its descriptor.  Here one that brings bytes and nothing
else goes straight to ``doRead``; any other goes the stock way.  Log lines do not say of which connection they are then:
not for several brokers in one process, whose lines are told apart by that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.python import log

_NEEDED = ("_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable", "_POLL_IN")
"""What is not public, and may go: then all stays stock."""


def poll_leanly(reactor: Any) -> bool:
    """Have a reactor of epoll poll so, before or while it runs.

    :return: whether it does; any other reactor, and one that is built otherwise, stays as it is.
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
                continue  # closed by what was called before
            if event != reading:
                log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, descriptor, event)
                continue
            try:
                why = selectable.doRead()
            except BaseException as error:  # as stock: whatever it is, it ends this connection only
                why = error
                log.err()
            if why:
                reactor._disconnectSelectable(selectable, why, True)

    return iterate
