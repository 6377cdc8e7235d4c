"""Polls all brokers for new timeline entries, once for all listeners."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.admin.cluster_state.merged_timeline import Document, key_of, merged
from kreplica.admin.http.api import Call, ServerEvent
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause

log = Logger()

POLL_SECONDS = 1.0
QUEUE_MAX = 1000
"""Maximum number of queued entries per listener; a slower listener is disconnected and resumes after its last entry."""

SEEN_MAX = 5000
"""Maximum number of entries remembered as delivered."""

ReadEntries = Callable[[Call, Mapping[int, str]], Awaitable[Iterable[Document]]]
"""Reads the entries of all brokers; for each broker ID in the mapping, only those newer than the given entry."""


class TimelineFeed:
    """Polls while there are listeners.

    :param read: requests entries from all brokers.
    """

    def __init__(self, reactor: Reactor, read: ReadEntries) -> None:
        self._reactor = reactor
        self._read = read
        self._listeners: dict[_Listener, None] = {}
        self._seen: dict[str, None] = {}
        self._newest: dict[int, str] = {}
        self._polling: Deferred[None] | None = None

    async def events(self, call: Call) -> AsyncIterator[ServerEvent]:
        """Yield the entries since the caller's last one, then new ones."""
        listener = _Listener(call)
        try:
            missed = await self._join(listener)
            if call.last_event_id is not None:
                last = key_of(call.last_event_id)
                for document in reversed(missed):
                    if key_of(document["id"]) > last:
                        yield _event(document)
            async for document in listener.documents():
                yield _event(document)
        finally:
            self._leave(listener)

    async def _join(self, listener: _Listener) -> list[Document]:
        """Add a listener.

        :return: the current entries, newest first; they are not delivered to this listener again.
        """
        self._listeners[listener] = None
        documents = merged(await self._read(listener.call, {}))
        self._mark_seen(documents)
        listener.begin({document["id"] for document in documents})
        if self._polling is None:
            self._polling = Deferred.fromCoroutine(self._poll())
            self._polling.addErrback(_log_failure)
        return documents

    def _leave(self, listener: _Listener) -> None:
        self._listeners.pop(listener, None)
        if not self._listeners and self._polling is not None:
            polling, self._polling = self._polling, None
            polling.cancel()
            self._seen.clear()
            self._newest.clear()

    async def _poll(self) -> None:
        while True:
            await pause(self._reactor, POLL_SECONDS)
            # The call carries the caller's token, so it must belong to a connected listener.
            call = next(reversed(self._listeners)).call
            try:
                found = await self._read(call, dict(self._newest))
            except CancelledError:
                raise
            except Exception as error:
                log.warn("events: reading the timeline failed, retrying: {error}", error=str(error))
                continue
            news = [document for document in reversed(merged(found)) if document["id"] not in self._seen]
            self._mark_seen(reversed(news))
            for listener in list(self._listeners):
                listener.deliver(news)

    def _mark_seen(self, newest_first: Iterable[Document]) -> None:
        for document in reversed(list(newest_first)):
            entry_id, broker = document["id"], document["broker_id"]
            self._seen[entry_id] = None
            if key_of(entry_id) > key_of(self._newest.get(broker, "0-0-0")):
                self._newest[broker] = entry_id
        while len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]


class _Listener:
    """Queue of new entries for one event stream."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._delivered_ids: set[str] | None = None
        self._queue: deque[Document] = deque()
        self._available: Deferred[None] | None = None
        self._is_behind = False

    def begin(self, entry_ids: set[str]) -> None:
        """Mark these entries as already delivered; newer ones will be queued."""
        self._delivered_ids = entry_ids

    def deliver(self, documents: Iterable[Document]) -> None:
        """Queue new entries."""
        if self._delivered_ids is None:
            return  # the listener is still reading the existing entries
        for document in documents:
            if document["id"] not in self._delivered_ids:
                self._queue.append(document)
        self._is_behind = len(self._queue) > QUEUE_MAX
        if self._queue and self._available is not None:
            available, self._available = self._available, None
            available.callback(None)

    async def documents(self) -> AsyncIterator[Document]:
        """Yield new entries until the queue overflows."""
        while not self._is_behind:
            if not self._queue:
                self._available = Deferred()
                try:
                    await self._available
                finally:
                    self._available = None
            while self._queue and not self._is_behind:
                yield self._queue.popleft()


def _event(document: Document) -> ServerEvent:
    return ServerEvent("timeline", document, event_id=document["id"])


def _log_failure(failure: Any) -> None:
    if failure.check(CancelledError) is None:
        log.failure("polling the timeline failed", failure)
