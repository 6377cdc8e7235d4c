"""Deferreds for records: there are many, and most are fired before anybody looks at them, or dropped.

A ``Promise`` is a ``Deferred`` that has no list of callbacks until somebody adds one: it takes half the time, and the
garbage collector, whose work is most of what a record in memory costs, has half the objects to visit.  That leans on
how Twisted keeps callbacks since 25.5; where it keeps them otherwise, plain Deferreds do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from kreplica.client.producer.written import Written


class _Callbacks:
    """The list, made when it is looked for; from then on the instance has it."""

    def __get__(self, promise: Any, _: type | None = None) -> list[Any]:
        callbacks: list[Any] = []
        promise._callbacks = callbacks
        promise.is_watched = True
        return callbacks


class Promise(Deferred[Written]):
    """Of what becomes of a record.

    :ivar is_watched: somebody waits, or did.
    """

    is_watched = False
    _canceller = None
    if not TYPE_CHECKING:
        _callbacks = _Callbacks()

    def __init__(self) -> None:
        """Nothing is to be done that the class does not do."""

    def keep(self, written: Written) -> None:
        """As ``callback``; in a fraction of its time where nobody waits."""
        if self.called or self.is_watched:
            self.callback(written)
        else:
            self.called, self.result = True, written


class _PlainPromise(Deferred[Written]):
    """The same by Twisted's own means."""

    is_watched = True

    def keep(self, written: Written) -> None:
        """As ``callback``."""
        self.callback(written)


def _keeps_callbacks_as_expected() -> bool:
    return vars(Deferred()) == {"_callbacks": [], "_canceller": None}


if not TYPE_CHECKING and (Deferred.debug or not _keeps_callbacks_as_expected()):
    Promise = _PlainPromise
