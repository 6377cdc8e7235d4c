"""Bounded queue of requests that wait for a connection."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor
from kreplica.zookeeper.connection import Decode, OnResponse
from kreplica.zookeeper.errors import NotSent, PipelineFull


class WaitingRequest(NamedTuple):
    """Arguments of ``Connection.send``."""

    opcode: int
    body: bytes
    deferred: Deferred[Any]
    decode: Decode
    path: str | None
    on_response: OnResponse | None


class WaitingRequests:
    """Queue of a session's requests; a timer runs only while the queue is not empty.

    :param seconds_max: maximum time for which a request waits; after it the request fails with ``NotSent``.
    """

    def __init__(self, reactor: Reactor, requests_max: int, bytes_max: int, seconds_max: float) -> None:
        self._reactor = reactor
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._queue: deque[tuple[float, WaitingRequest]] = deque()
        self._bytes = 0
        self._timer: IDelayedCall | None = None

    def add(self, request: WaitingRequest) -> None:
        """Queue a request, or fail it with ``PipelineFull`` if the queue is full."""
        if len(self._queue) >= self._requests_max or self._bytes > self._bytes_max:
            request.deferred.errback(PipelineFull(request.path))
            return
        self._queue.append((self._reactor.seconds() + self._seconds_max, request))
        self._bytes += len(request.body)
        if self._timer is None:
            self._timer = self._reactor.callLater(self._seconds_max, self._fail_overdue)

    def take_all(self) -> list[WaitingRequest]:
        """Empty the queue and return its requests, except those that the caller has cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        queue, self._queue, self._bytes = self._queue, deque(), 0
        return [request for _until, request in queue if not request.deferred.called]

    def _fail_overdue(self) -> None:
        self._timer = None
        now = self._reactor.seconds()
        overdue = []
        while self._queue and self._queue[0][0] <= now:
            request = self._queue.popleft()[1]
            self._bytes -= len(request.body)
            overdue.append(request)
        if self._queue:
            self._timer = self._reactor.callLater(self._queue[0][0] - now, self._fail_overdue)
        for request in overdue:
            if not request.deferred.called:
                text = f"no connection for {self._seconds_max:g} s; the request was not sent"
                request.deferred.errback(NotSent(request.path, text))
