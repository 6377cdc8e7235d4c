"""Deferreds of records; most of them fire before a callback is added or are never used.

A ``RecordDeferred`` is a ``Deferred`` whose list of callbacks is created on demand.  Creating one takes half as long as
creating a plain Deferred.  The garbage collector, which causes most of the cost of a record in memory, visits half as
many objects.  The class depends on the attributes that Deferred has had since Twisted 25.5; with other attributes,
plain Deferreds are used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.client.producer.completion_counter import CompletionCounter
from kreplica.client.producer.written_record import Written
from kreplica.client_core.errors import ClientError, TransactionFailed


class _Callbacks:
    """Creates the list of callbacks on first access."""

    def __get__(self, promise: Any, _: type | None = None) -> list[Any]:
        callbacks: list[Any] = []
        promise._callbacks = callbacks
        promise.is_watched = True
        return callbacks


class RecordDeferred(Deferred[Written]):
    """Fires with the outcome of a record; ``complete_records`` fires many of them.

    :ivar is_watched: a callback was added.
    """

    is_watched = False
    _canceller = None
    if not TYPE_CHECKING:
        _callbacks = _Callbacks()
        __init__ = object.__init__  # the class attributes are complete


class _PlainRecordDeferred(Deferred[Written]):
    """Plain Deferred with the same interface, for versions of Twisted with other attributes."""

    is_watched = True


def _keeps_callbacks_as_expected() -> bool:
    return vars(Deferred()) == {"_callbacks": [], "_canceller": None}


def complete_records(waiters: Iterable[RecordDeferred | CompletionCounter], rows: Iterable[Written]) -> None:
    """Fire each Deferred with its result; without callbacks, only set the attributes that ``callback`` would set."""
    for waiter, written in zip(waiters, rows, strict=False):
        if isinstance(waiter, CompletionCounter):
            waiter.complete(None)
        elif waiter.is_watched or waiter.called:
            waiter.callback(written)
        else:
            waiter.called, waiter.result = True, written


def fail_record(waiter: RecordDeferred | CompletionCounter, error: ClientError) -> None:
    """Fail one record.

    Unused Deferreds of an aborted transaction do not log their errors.
    """
    if isinstance(waiter, CompletionCounter):
        waiter.complete(error)
    elif isinstance(error, TransactionFailed) and not (waiter.is_watched or waiter.called):
        waiter.called, waiter.result = True, Failure(error)
    else:
        waiter.errback(error)


if not TYPE_CHECKING and (Deferred.debug or not _keeps_callbacks_as_expected()):
    RecordDeferred = _PlainRecordDeferred
