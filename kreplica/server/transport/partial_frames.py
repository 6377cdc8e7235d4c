"""Memory of incomplete frames: counted by connection and client address, bounded, and taken from the slowest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.metrics import ServerMetrics

log = Logger()

SMALL_FRAME_BYTES = 2**20
"""Frames up to this length have a pool of their own, so that they never wait for larger ones."""

SMALL_SHARE = 4
"""The pool of small frames is this part of the bound: a quarter."""


class Holder(Protocol):
    """A transport that is inside a frame."""

    connection: Connection

    def wait_for_memory(self) -> None:
        """Stop reading until ``go_on``."""

    def go_on(self) -> None:
        """Read again."""


class _Frame:
    """One incomplete frame.

    :ivar mark_s: when the window that measures its rate began; moved on by the time that it waits for memory.
    :ivar mark_bytes: what it held then.
    :ivar is_slow: whether it was below the minimum rate in the last whole window.
    :ivar waits_since_s: None while it is read.
    """

    __slots__ = ("address", "held", "is_slow", "mark_bytes", "mark_s", "waits_since_s")

    def __init__(self, address: str, now_s: float) -> None:
        self.address = address
        self.held = 0
        self.mark_s = now_s
        self.mark_bytes = 0
        self.is_slow = False
        self.waits_since_s: float | None = None


class PartialFrames:
    """Incomplete frames of all connections, in one pool for small frames and one for large ones.

    :param bytes_max: of both pools together.
    :param rate_min: bytes per second; a slower frame is evicted when its pool is full, the largest first.
    :param window_s: for how long a frame's rate is measured before it can count as slow.
    :param seconds: the reactor's clock.
    """

    def __init__(
        self, bytes_max: int, rate_min: float, window_s: float, seconds: Callable[[], float], metrics: ServerMetrics
    ) -> None:
        small_max = bytes_max // SMALL_SHARE
        self.small = _Pool(small_max, rate_min, window_s, seconds, metrics)
        self.large = _Pool(bytes_max - small_max, rate_min, window_s, seconds, metrics)

    @property
    def held_bytes(self) -> int:
        """Bytes of all incomplete frames."""
        return self.small.held_bytes + self.large.held_bytes

    def update(self, holder: Holder, held: int, length: int) -> None:
        """Count what a connection holds of an incomplete frame.

        :param length: of the whole frame.
        """
        pool, other = (self.small, self.large) if length <= SMALL_FRAME_BYTES else (self.large, self.small)
        other.remove(holder)  # a length that was not complete yet counted as small
        pool.update(holder, held)

    def end(self, holder: Holder) -> None:
        """The connection's frame is complete, or the connection is lost."""
        self.small.remove(holder)
        self.large.remove(holder)

    def sweep(self) -> None:
        """Measure rates, and evict slow frames where others wait; called a few times in each window."""
        self.small.sweep()
        self.large.sweep()


class _Pool:
    """Beyond the bound an address that holds less than its share is read on; of the others one frame at a time is,
    until it is complete, and the rest wait.  So the bound is exceeded by one frame and by the shares at most.

    :ivar held_bytes: now.
    :ivar going: the holder that is read while others wait; None where none waits.
    """

    def __init__(
        self, bytes_max: int, rate_min: float, window_s: float, seconds: Callable[[], float], metrics: ServerMetrics
    ) -> None:
        self.held_bytes = 0
        self.going: Holder | None = None
        self._bytes_max = bytes_max
        self._rate_min = rate_min
        self._window_s = window_s
        self._seconds = seconds
        self._metrics = metrics
        self._frames: dict[Holder, _Frame] = {}
        self._by_address: dict[str, int] = {}
        self._waiting: dict[Holder, None] = {}

    @property
    def is_scarce(self) -> bool:
        """Whether connections wait for memory."""
        return bool(self._waiting)

    def update(self, holder: Holder, held: int) -> None:
        frame = self._frames.get(holder)
        if frame is None:
            if holder.connection.closed:
                return
            frame = self._frames[holder] = _Frame(holder.connection.peer.rpartition(":")[0], self._seconds())
        self._count(frame, held - frame.held)
        frame.held = held
        if self.held_bytes > self._bytes_max and holder is not self.going:
            self._hold_back(holder, frame)

    def remove(self, holder: Holder) -> None:
        if self._forget(holder):
            self._wake()

    def sweep(self) -> None:
        now_s = self._seconds()
        for holder, frame in self._frames.items():
            is_read = frame.waits_since_s is None and not holder.connection.keeps_frame
            if is_read and now_s - frame.mark_s >= self._window_s:
                frame.is_slow = frame.held - frame.mark_bytes < self._rate_min * (now_s - frame.mark_s)
                frame.mark_s, frame.mark_bytes = now_s, frame.held
        if self.held_bytes > self._bytes_max:
            self._evict_slow()
            self._wake()

    def _count(self, frame: _Frame, more: int) -> None:
        self.held_bytes += more
        total = self._by_address.get(frame.address, 0) + more
        if total:
            self._by_address[frame.address] = total
        else:
            self._by_address.pop(frame.address, None)

    def _forget(self, holder: Holder) -> bool:
        frame = self._frames.pop(holder, None)
        if frame is None:
            return False
        self._count(frame, -frame.held)
        self._waiting.pop(holder, None)
        if holder is self.going:
            self.going = None
        return True

    def _hold_back(self, holder: Holder, frame: _Frame) -> None:
        """The pool is full: make room, or let this frame wait unless its address holds less than its share."""
        self._evict_slow()
        addresses = len(self._by_address)
        if self.held_bytes <= self._bytes_max:
            self._wake()
        elif addresses > 1 and self._by_address.get(frame.address, 0) <= self._bytes_max // addresses:
            return
        elif holder in self._frames:  # it was not evicted itself
            if self.going is None:
                self.going = holder
            else:
                self._waiting[holder] = None
                frame.waits_since_s = self._seconds()
                holder.wait_for_memory()

    def _evict_slow(self) -> None:
        """Close the connections of slow frames until the pool is below its bound: those of the address that holds
        most come first, and of one address the largest frame.
        """
        if self.held_bytes <= self._bytes_max:
            return
        slow = [
            (self._by_address[frame.address], frame.held, holder)
            for holder, frame in self._frames.items()
            if frame.is_slow
        ]
        slow.sort(key=lambda each: each[:2])
        while slow and self.held_bytes > self._bytes_max:
            _, held, holder = slow.pop()
            self._forget(holder)
            self._metrics.partial_evictions += 1
            reason = f"{held} bytes of a request, slower than {self._rate_min:g} bytes/s, while memory is scarce"
            log.info("closing the connection from {peer}: {reason}", peer=holder.connection.peer, reason=reason)
            holder.connection.drop(reason)

    def _wake(self) -> None:
        if self.held_bytes <= self._bytes_max:
            waiting, self._waiting, self.going = self._waiting, {}, None
            for holder in waiting:
                self._let_go_on(holder)
        elif self.going is None and self._waiting:
            self.going = holder = next(iter(self._waiting))
            del self._waiting[holder]
            self._let_go_on(holder)

    def _let_go_on(self, holder: Holder) -> None:
        frame = self._frames[holder]
        assert frame.waits_since_s is not None, "it waits"
        frame.mark_s += self._seconds() - frame.waits_since_s
        frame.waits_since_s = None
        holder.go_on()
