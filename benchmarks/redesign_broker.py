"""A standalone broker that handles requests in a selectable order, for the benchmark of control-plane priority.

``python -m benchmarks.redesign_broker ORDER twistd-arguments ...``.  A kreplica broker has no request queue, so this
program adds the queues of the controller redesign between the network and the handlers.  If clients send one request at
a time, a connection has at most one request in a queue, as in Kafka.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.transport.epoll_transport import EpollTransport

CONTROL_KEYS = (4, 5, 6)
"""LeaderAndIsr, StopReplica and UpdateMetadata."""
QUEUE_SIZE_MAX = 500
"""Kafka's default for ``queued.max.requests``; the network threads wait while the queue is full."""
HANDLER_COUNT = 8
"""Number of requests handled before the network is read again, to simulate ``num.io.threads`` threads."""
POLL_S = 0.3
"""Time for which a handler waits for a regular request before it looks at the other queue."""

ORDERS = ("sockets first", "no priority", "one queue", "two queues", "priority queue")
"""kreplica, kreplica without priority, Kafka's queue, and the first and second options of the redesign."""


class RequestQueue:
    """Requests between the network and the handlers.

    :param order: ``one queue``, ``two queues`` or ``priority queue``.
    """

    def __init__(self, order: str, reactor: Any, handle: Callable[[Connection, memoryview], None], scope: Any) -> None:
        self._regular: deque[tuple[Connection, memoryview]] = deque()
        self._control = self._regular if order == "one queue" else deque[tuple[Connection, memoryview]]()
        self._polls_regular = order == "two queues"
        self._reactor = reactor
        self._handle_frame = handle
        self._scope = scope
        self._idle_since: float | None = reactor.seconds()
        self._next: Any = None

    @property
    def is_full(self) -> bool:
        """True if the network must wait."""
        return len(self._regular) >= QUEUE_SIZE_MAX

    def put(self, connection: Connection, frame: memoryview) -> None:
        """Queue a copy of a request, and wake a handler."""
        is_control = int.from_bytes(frame[:2], "big") in CONTROL_KEYS
        (self._control if is_control else self._regular).append((connection, memoryview(bytearray(frame))))
        delay_s = 0.0
        if is_control and self._polls_regular and self._idle_since is not None and not self._regular:
            # The handler is waiting for a regular request and does not notice this one until its wait ends.
            waited_s = self._reactor.seconds() - self._idle_since
            delay_s = POLL_S * math.ceil(waited_s / POLL_S) - waited_s
        self._schedule(delay_s)

    def _schedule(self, delay_s: float) -> None:
        if self._next is not None:
            if self._next.getTime() <= self._reactor.seconds() + delay_s:
                return
            self._next.cancel()
        self._next = self._reactor.callLater(delay_s, self._handle)

    def _handle(self) -> None:
        self._next = self._idle_since = None
        with self._scope:
            for _ in range(HANDLER_COUNT):
                queue = self._control or self._regular
                if not queue:
                    break
                connection, frame = queue.popleft()
                if not connection.closed:
                    self._handle_frame(connection, frame)
        if self._control or self._regular:
            self._schedule(0.0)
        else:
            self._idle_since = self._reactor.seconds()


def install(order: str) -> None:
    """Change the order of requests in this process; ``sockets first`` changes nothing."""
    if order == "sockets first":
        return
    patched: Any = Connection
    patched.mark_control = lambda self: None
    if order != "no priority":
        _install_queue(order)


def _install_queue(order: str) -> None:
    from twisted.internet import reactor

    dispatch_class: Any = Dispatch
    transport_class: Any = EpollTransport
    handle, read = Dispatch.frame_received, EpollTransport.doRead
    queues: list[RequestQueue] = []

    def frame_received(self: Any, connection: Connection, frame: memoryview) -> None:
        queues[0].put(connection, frame)

    def do_read(self: Any) -> Any:
        if not queues:
            resources = self._resources
            queues.append(RequestQueue(order, reactor, partial(handle, resources.dispatch), resources.flush_scope))
        return None if queues[0].is_full else read(self)

    dispatch_class.frame_received = frame_received
    transport_class.doRead = do_read


if __name__ == "__main__":
    install(sys.argv.pop(1))
    from twisted.scripts.twistd import run as run_twistd

    run_twistd()
