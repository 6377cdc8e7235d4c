"""Deferreds for records: there are many, and most are fired before anybody looks at them, or dropped.

A ``Promise`` is a ``Deferred`` that has no list of callbacks until somebody adds one: it takes half the time, and the
garbage collector, whose work is most of what a record in memory costs, has half the objects to visit.  That leans on
how Twisted keeps callbacks since 25.5; where it keeps them otherwise, plain Deferreds do the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.client.producer.completion_counter import Countdown
from kreplica.client.producer.written import Written
from kreplica.client_core.errors import ClientError, TransactionFailed


class _Callbacks:
    """The list, made when it is looked for; from then on the instance has it."""

    def __get__(self, promise: Any, _: type | None = None) -> list[Any]:
        callbacks: list[Any] = []
        promise._callbacks = callbacks
        promise.is_watched = True
        return callbacks


class Promise(Deferred[Written]):
    """Of what becomes of a record; ``keep_promises`` fires many.

    :ivar is_watched: somebody waits, or did.
    """

    is_watched = False
    _canceller = None
    if not TYPE_CHECKING:
        _callbacks = _Callbacks()
        __init__ = object.__init__  # nothing is to be done that the class does not do


class _PlainPromise(Deferred[Written]):
    """The same by Twisted's own means."""

    is_watched = True


def _keeps_callbacks_as_expected() -> bool:
    return vars(Deferred()) == {"_callbacks": [], "_canceller": None}


def keep_promises(waiters: Iterable[Promise | Countdown], rows: Iterable[Written]) -> None:
    """Tell each its own; where nobody waits, what ``callback`` would do is done without it."""
    for waiter, written in zip(waiters, rows, strict=False):
        if isinstance(waiter, Countdown):
            waiter.told(None)
        elif waiter.is_watched or waiter.called:
            waiter.callback(written)
        else:
            waiter.called, waiter.result = True, written


def break_promise(waiter: Promise | Countdown, error: ClientError) -> None:
    """Tell one that its record was not written.

    Of a transaction that is aborted nobody has to hear record by record: Deferreds that were dropped say nothing then.
    """
    if isinstance(waiter, Countdown):
        waiter.told(error)
    elif isinstance(error, TransactionFailed) and not (waiter.is_watched or waiter.called):
        waiter.called, waiter.result = True, Failure(error)
    else:
        waiter.errback(error)


if not TYPE_CHECKING and (Deferred.debug or not _keeps_callbacks_as_expected()):
    Promise = _PlainPromise
