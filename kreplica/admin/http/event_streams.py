"""Sends streams at the client's pace until the client disconnects: server-sent events, and files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.logger import Logger
from twisted.web.server import Request
from zope.interface import implementer

from kreplica.admin.http.api import ServerEvent
from kreplica.admin.http.failures import problem_of
from kreplica.runtime import Reactor

log = Logger()

T = TypeVar("T")

HEARTBEAT_SECONDS = 15.0
"""Idle time before a comment is sent, which detects broken connections and keeps proxies from closing the stream."""

SLOW_SECONDS_MAX = 60.0
"""Time after which a client that reads nothing is disconnected."""


@implementer(IPushProducer)
class StreamSender(Generic[T]):
    """Sends one stream; ``run`` returns when the stream has ended.

    :param request: must have its headers set.
    """

    def __init__(self, reactor: Reactor, request: Request, items: AsyncIterator[T]) -> None:
        self._reactor = reactor
        self._request = request
        self._items = items
        self._resumed: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None

    async def run(self) -> None:
        """Send items until they end, or until a disconnect or the server's stop cancels this task."""
        self._request.registerProducer(self, True)
        try:
            self._begin()
            async for item in self._items:
                self._send(self._encode(item))
                if self._resumed is not None:
                    await self._resumed
        except CancelledError:
            raise
        except Exception as error:
            self._fail(error)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._request.channel is not None:  # the client is still there
                self._request.unregisterProducer()
            close = getattr(self._items, "aclose", None)
            if close is not None:
                await close()

    def _begin(self) -> None:
        """Send the headers."""

    def _encode(self, item: T) -> bytes:
        raise NotImplementedError

    def _fail(self, error: Exception) -> None:
        """Report an error after the status was sent."""
        raise NotImplementedError

    def _idle(self) -> None:
        """Called if nothing was sent for ``HEARTBEAT_SECONDS``."""

    # --- flow control ------------------------------------------------------------------------------------------------

    def pauseProducing(self) -> None:
        if self._resumed is None:
            self._resumed = Deferred()
            self._restart_timer(SLOW_SECONDS_MAX)

    def resumeProducing(self) -> None:
        if self._resumed is not None:
            resumed, self._resumed = self._resumed, None
            self._restart_timer(HEARTBEAT_SECONDS)
            resumed.callback(None)

    def stopProducing(self) -> None:
        """Do nothing: the task that calls ``run`` is cancelled when the connection closes."""

    def _send(self, data: bytes) -> None:
        self._request.write(data)
        if self._resumed is None:
            self._restart_timer(HEARTBEAT_SECONDS)

    def _restart_timer(self, seconds: float) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self._reactor.callLater(seconds, self._timer_expired)

    def _timer_expired(self) -> None:
        self._timer = None
        if self._resumed is None:
            self._idle()
        else:
            self._abort()

    def _abort(self) -> None:
        transport: Any = self._request.transport
        transport.abortConnection()


class EventSender(StreamSender[ServerEvent]):
    """Sends server-sent events."""

    def _begin(self) -> None:
        self._send(b": kreplica\n\n")

    def _encode(self, item: ServerEvent) -> bytes:
        return _encode_event(item)

    def _idle(self) -> None:
        self._send(b": still here\n\n")

    def _fail(self, error: Exception) -> None:
        """Send the error as the last event, because the status was already sent."""
        problem = problem_of(error)
        if problem is None:
            log.failure("an event stream failed")
            self._send(b'event: problem\ndata: {"title":"UNKNOWN_SERVER_ERROR"}\n\n')
        else:
            path = self._request.path.decode(errors="replace")
            self._send(_encode_event(ServerEvent("problem", problem.document(path))))


class FileSender(StreamSender[bytes]):
    """Sends the parts of a file."""

    def _encode(self, item: bytes) -> bytes:
        return item

    def _fail(self, error: Exception) -> None:
        """Close the connection early, so that the client does not treat the file as complete."""
        if problem_of(error) is None:
            log.failure("a download failed")
        self._abort()


def _encode_event(event: ServerEvent) -> bytes:
    id_line = f"id: {event.event_id}\n" if event.event_id is not None else ""
    data = json.dumps(event.data, separators=(",", ":"), ensure_ascii=False)
    return f"event: {event.name}\n{id_line}data: {data}\n\n".encode()
