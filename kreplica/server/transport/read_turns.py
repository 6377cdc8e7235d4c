"""Fair distribution of reading and handling time over client addresses, and over the connections of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.logger import Logger

from kreplica.runtime import Reactor

log = Logger()

SHARE_S = 0.003
"""Time per iteration of the event loop in which requests of one address are handled as soon as they are read."""

QUEUE_S = 0.002
"""Time per iteration for the connections in the queues of all addresses."""


class Reader(Protocol):
    """A connection that can wait for its turn to be read.

    :ivar share: the time used by its address, and its queue.
    :ivar is_bulk: True if its last read had more requests than one read may handle.
    """

    share: AddressShare
    is_bulk: bool

    def take_turn(self) -> None:
        """Read and handle requests for a short time; call ``ReadTurns.wait`` again if any are left."""


class AddressShare:
    """Time used by the connections of one client address, and the queues of its waiting connections.

    :ivar address: the client address.
    :ivar used_s: seconds used since the current iteration of the event loop started, or slightly before.
    :ivar connections: number of open connections.
    :ivar small: waiting connections with few requests, in FIFO order.
    :ivar bulk: waiting connections with many requests, in FIFO order.  The two queues alternate.
    :ivar is_waiting: True if one of the queues is not empty.
    """

    __slots__ = ("address", "bulk", "connections", "is_waiting", "small", "used_s")

    def __init__(self, address: str) -> None:
        self.address = address
        self.used_s = 0.0
        self.connections = 0
        self.is_waiting = False
        self.small: deque[Reader] = deque()
        self.bulk: deque[Reader] = deque()


class ReadTurns:
    """Queues of connections that would take more than their share of the event loop.

    A connection waits here if it has sent more requests than one read may handle, or if its address has used its time
    in this iteration.  Addresses take turns, and so do the connections of an address.  Other connections are read as
    soon as their bytes arrive.

    :ivar is_contended: True while connections wait; a connection with ``is_bulk`` must then also wait for its turn.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._shares: dict[str, AddressShare] = {}
        self._waiting: deque[AddressShare] = deque()
        self._used: set[AddressShare] = set()
        self._is_scheduled = False
        self.is_contended = False

    def __len__(self) -> int:
        """Number of addresses with open connections."""
        return len(self._shares)

    def opened(self, address: str) -> AddressShare:
        """Return the share that a new connection of an address uses."""
        share = self._shares.get(address)
        if share is None:
            share = self._shares[address] = AddressShare(address)
        share.connections += 1
        return share

    def closed(self, share: AddressShare) -> None:
        """Release the share of a connection that is closed."""
        share.connections -= 1
        if not share.connections:
            del self._shares[share.address]

    def spend(self, share: AddressShare, seconds: float) -> None:
        """Charge time to an address; its used time is reset in the next iteration."""
        share.used_s += seconds
        if share.used_s >= SHARE_S / 2:
            self._used.add(share)
            self._schedule()

    def wait(self, reader: Reader) -> None:
        """Call ``take_turn`` once, in a later iteration."""
        share = reader.share
        (share.bulk if reader.is_bulk else share.small).append(reader)
        if not share.is_waiting:
            share.is_waiting = True
            self._waiting.append(share)
        self.is_contended = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._reactor.callLater(0, self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_scheduled = False
        for share in self._used:
            share.used_s = 0.0
        self._used.clear()
        seconds: Callable[[], float] = self._reactor.seconds
        until_s = seconds() + QUEUE_S
        # Each connection has at most one turn, so that the loop ends even if the clock does not advance.
        turns_left = sum(len(share.small) + len(share.bulk) for share in self._waiting)
        while turns_left > 0 and self._waiting:
            share = self._waiting.popleft()
            for queue in (share.small, share.bulk):
                if queue:
                    turns_left -= 1
                    _take_turn(queue.popleft())
            if share.small or share.bulk:
                self._waiting.append(share)
            else:
                share.is_waiting = False
            if seconds() >= until_s:
                break
        self.is_contended = bool(self._waiting)
        if self._waiting:
            self._schedule()


def _take_turn(reader: Any) -> None:
    try:
        reader.take_turn()
    except Exception:
        # An error on one connection must not stop the queues.
        log.failure("reading from {reader!r} failed", reader=reader)
        reader.abort()
