"""Waiting a while, on the reactor that is given."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from kreplica.runtime import Reactor


def pause(reactor: Reactor, seconds: float) -> Deferred[None]:
    """Fires after so many seconds; cancelling it leaves no timer behind."""
    return deferLater(cast(IReactorTime, reactor), seconds, lambda: None)
