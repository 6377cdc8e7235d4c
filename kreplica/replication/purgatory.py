"""Purgatory: watches partitions for delayed produce requests and fetches (``server.fetch.delayed_fetch``).

Changed partitions are marked. Once per reactor iteration the operations that watch marked partitions are checked, no
matter how many batches were appended in that iteration.
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

_by_partition = attrgetter("topic_partition")


class Watched(Protocol):
    """A partition whose changes complete delayed operations.

    :ivar watchers: ``EMPTY_DICT`` until there are some.
    """

    watchers: dict[Watcher, None]

    @property
    def topic_partition(self) -> TopicPartition: ...


class Watcher(Protocol):
    """An object registered in a partition's ``watchers``."""

    def changed(self, partitions: set[Any]) -> None:
        """Handle changed partitions; they may include partitions that are not watched.

        The watcher may remove itself from their ``watchers``.
        """


class DelayedOperation:
    """A request that waits for partitions until it is complete, times out or is abandoned.

    :param try_complete: called with the changed partitions; returns True if the operation is complete and its
        response was sent.
    :param expire: called after the timeout.
    """

    __slots__ = ("_expire", "_partitions", "_timer", "_try_complete")

    def __init__(
        self,
        reactor: Reactor,
        partitions: Iterable[Watched],
        timeout_s: float,
        try_complete: Callable[[set[Any]], bool],
        expire: Callable[[], None],
    ) -> None:
        self._partitions = tuple(partitions)
        self._try_complete = try_complete
        self._expire = expire
        self._timer: IDelayedCall | None = reactor.callLater(max(timeout_s, 0), self._expired)
        for partition in self._partitions:
            if not partition.watchers:
                partition.watchers = {}
            partition.watchers[self] = None

    def changed(self, partitions: set[Any]) -> None:
        if self._timer is not None and self._try_complete(partitions):
            self.abandon()

    def abandon(self) -> None:
        """Stop waiting; sends no response. May be called again."""
        timer, self._timer = self._timer, None
        if timer is None:
            return
        if timer.active():
            timer.cancel()
        for partition in self._partitions:
            partition.watchers.pop(self, None)

    def _expired(self) -> None:
        self.abandon()
        self._expire()


AtEndOfIteration = Callable[[Callable[[], object]], None]
"""Schedules a call after all received requests were handled and before their responses are sent."""


class Purgatory:
    """Collects changed partitions of one broker and notifies their watchers once per reactor iteration."""

    def __init__(self, at_end_of_iteration: AtEndOfIteration) -> None:
        self._at_end_of_iteration = at_end_of_iteration
        self._marked: set[Watched] = set()
        self._scheduled = False

    def mark(self, partition: Watched) -> None:
        """Mark a partition that changed."""
        if partition.watchers:
            self._marked.add(partition)
            if not self._scheduled:
                self._scheduled = True
                self._at_end_of_iteration(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        marked, self._marked = self._marked, set()
        # Ordered by partition, because iteration over sets of objects differs between runs.
        waiting: dict[Watcher, None] = {}
        for partition in sorted(marked, key=_by_partition):
            waiting.update(partition.watchers)
        for watcher in waiting:
            try:
                watcher.changed(marked)
            except Exception:
                # The other operations are notified, too; otherwise they would wait until their timeout.
                log.failure("a delayed operation failed after {count} partitions changed", count=len(marked))
