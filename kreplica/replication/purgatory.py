"""Requests that wait: fetches for enough bytes, produces for their replicas.  Both wait on partitions, with a limit.

A partition that changed is marked; once per turn of the loop everything that waits on marked partitions is looked at,
however many batches were appended in that turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.model import TopicPartition
from kreplica.runtime import Reactor

log = Logger()

_in_order = attrgetter("topic_partition")


class Watched(Protocol):
    """A partition whose changes complete delayed operations."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def waiting(self) -> dict[Watcher, None]: ...


class Watcher(Protocol):
    """Whoever stands in a partition's ``waiting``."""

    def changed(self, partitions: set[Any]) -> None:
        """Some partitions changed, perhaps others than its own; it may leave their ``waiting``."""


class Waiting:
    """One request that waits on some partitions until it is satisfied, its time is up, or it is abandoned.

    :param look: called with the partitions that changed; answers whether the wait is over (it has answered then).
    :param expire: called when the time is up.
    """

    __slots__ = ("_expire", "_look", "_partitions", "_timer")

    def __init__(
        self,
        reactor: Reactor,
        partitions: Iterable[Watched],
        timeout_s: float,
        look: Callable[[set[Any]], bool],
        expire: Callable[[], None],
    ) -> None:
        self._partitions = tuple(partitions)
        self._look = look
        self._expire = expire
        self._timer: IDelayedCall | None = reactor.callLater(max(timeout_s, 0), self._expired)
        for partition in self._partitions:
            partition.waiting[self] = None

    def changed(self, partitions: set[Any]) -> None:
        if self._timer is not None and self._look(partitions):
            self.abandon()

    def abandon(self) -> None:
        """Stop waiting, without an answer; again does nothing."""
        timer, self._timer = self._timer, None
        if timer is None:
            return
        if timer.active():
            timer.cancel()
        for partition in self._partitions:
            partition.waiting.pop(self, None)

    def _expired(self) -> None:
        self.abandon()
        self._expire()


AtEndOfTurn = Callable[[Callable[[], object]], None]
"""Calls something back when all requests that have arrived are handled, and before their answers leave."""


class Wakeups:
    """Marks partitions that changed, and wakes what waits on them once per turn of the loop.  One for a broker."""

    def __init__(self, at_end_of_turn: AtEndOfTurn) -> None:
        self._at_end_of_turn = at_end_of_turn
        self._marked: set[Watched] = set()
        self._scheduled = False

    def mark(self, partition: Watched) -> None:
        """Something about it changed that a waiting request may have waited for."""
        if partition.waiting:
            self._marked.add(partition)
            if not self._scheduled:
                self._scheduled = True
                self._at_end_of_turn(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        marked, self._marked = self._marked, set()
        # A dict, in the order of the partitions' arrival: sets of objects iterate differently from run to run.
        waiting: dict[Watcher, None] = {}
        for partition in sorted(marked, key=_in_order):
            waiting.update(partition.waiting)
        for request in waiting:
            try:
                request.changed(marked)
            except Exception:
                # The others of this turn are told all the same: they would wait until their time is up.
                log.failure("a request that waited for {count} partitions failed", count=len(marked))
