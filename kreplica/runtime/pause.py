"""Asynchronous sleep."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from kreplica.runtime import Reactor


def pause(reactor: Reactor, seconds: float) -> Deferred[None]:
    """Return a Deferred that fires after a delay; cancelling it also cancels the timer."""
    return deferLater(cast(IReactorTime, reactor), seconds, lambda: None)
