"""Memory of incomplete frames: counted by client address and limited; slow frames are evicted first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.metrics import ServerMetrics

log = Logger()

SMALL_FRAME_BYTES = 2**20
"""Maximum length of frames in the small pool; they never wait for larger ones."""

SMALL_POOL_DIVISOR = 4
"""The limit of the small pool is the total limit divided by this number."""


class Holder(Protocol):
    """A transport with an incomplete frame."""

    connection: Connection

    def wait_for_memory(self) -> None:
        """Stop reading until ``resume_with_memory``."""

    def resume_with_memory(self) -> None:
        """Resume reading."""


class _Frame:
    """One incomplete frame.

    :ivar held: bytes received.
    :ivar window_start_s: start of the window in which the rate is measured; time spent waiting for memory is excluded.
    :ivar window_start_bytes: ``held`` at that time.
    :ivar is_slow: True if the rate in the last complete window was below the minimum.
    :ivar waits_since_s: time at which it started to wait for memory; None while it is read.
    """

    __slots__ = ("address", "held", "is_slow", "waits_since_s", "window_start_bytes", "window_start_s")

    def __init__(self, address: str, now_s: float) -> None:
        self.address = address
        self.held = 0
        self.window_start_s = now_s
        self.window_start_bytes = 0
        self.is_slow = False
        self.waits_since_s: float | None = None


class PartialFrames:
    """Incomplete frames of all connections, in one pool for small frames and one for large ones.

    :param bytes_max: limit of both pools together.
    :param rate_min: bytes per second; slower frames are evicted when their pool is full, the largest first.
    :param window_s: period over which the rate of a frame is measured.
    :param seconds: the reactor's clock.
    """

    def __init__(
        self, bytes_max: int, rate_min: float, window_s: float, seconds: Callable[[], float], metrics: ServerMetrics
    ) -> None:
        small_max = bytes_max // SMALL_POOL_DIVISOR
        self.small = _Pool(small_max, rate_min, window_s, seconds, metrics)
        self.large = _Pool(bytes_max - small_max, rate_min, window_s, seconds, metrics)

    @property
    def held_bytes(self) -> int:
        """Bytes received of all incomplete frames."""
        return self.small.held_bytes + self.large.held_bytes

    def update(self, holder: Holder, held: int, length: int) -> None:
        """Set the number of bytes received of a connection's incomplete frame.

        :param held: bytes received.
        :param length: length of the complete frame.
        """
        pool, other = (self.small, self.large) if length <= SMALL_FRAME_BYTES else (self.large, self.small)
        other.remove(holder)  # an incomplete length prefix is counted as a small frame
        pool.update(holder, held)

    def remove(self, holder: Holder) -> None:
        """Remove a connection whose frame is complete, or which has closed."""
        self.small.remove(holder)
        self.large.remove(holder)

    def sweep(self) -> None:
        """Measure rates, and evict slow frames from a full pool; must be called a few times per window."""
        self.small.sweep()
        self.large.sweep()


class _Pool:
    """Pool of incomplete frames with a memory limit.

    When the pool is full, addresses below their fair share continue.  Of the other frames, only one at a time is
    read until it is complete; the others wait.  The limit is thus exceeded by at most one frame and the fair shares.

    :ivar active_holder: the holder whose frame currently continues above the limit, or None.
    """

    def __init__(
        self, bytes_max: int, rate_min: float, window_s: float, seconds: Callable[[], float], metrics: ServerMetrics
    ) -> None:
        self.held_bytes = 0
        self.active_holder: Holder | None = None
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
        """True if connections wait for memory."""
        return bool(self._waiting)

    def update(self, holder: Holder, held: int) -> None:
        frame = self._frames.get(holder)
        if frame is None:
            if holder.connection.closed:
                return
            frame = self._frames[holder] = _Frame(holder.connection.peer.rpartition(":")[0], self._seconds())
        self._count(frame, held - frame.held)
        frame.held = held
        if self.held_bytes > self._bytes_max and holder is not self.active_holder:
            self._evict_or_wait(holder, frame)

    def remove(self, holder: Holder) -> None:
        if self._discard(holder):
            self._wake()

    def sweep(self) -> None:
        now_s = self._seconds()
        for holder, frame in self._frames.items():
            is_read = frame.waits_since_s is None and not holder.connection.keeps_frame
            if is_read and now_s - frame.window_start_s >= self._window_s:
                frame.is_slow = frame.held - frame.window_start_bytes < self._rate_min * (now_s - frame.window_start_s)
                frame.window_start_s, frame.window_start_bytes = now_s, frame.held
        if self.held_bytes > self._bytes_max:
            self._evict_slow()
            self._wake()

    def _count(self, frame: _Frame, size_change: int) -> None:
        self.held_bytes += size_change
        total = self._by_address.get(frame.address, 0) + size_change
        if total:
            self._by_address[frame.address] = total
        else:
            self._by_address.pop(frame.address, None)

    def _discard(self, holder: Holder) -> bool:
        frame = self._frames.pop(holder, None)
        if frame is None:
            return False
        self._count(frame, -frame.held)
        self._waiting.pop(holder, None)
        if holder is self.active_holder:
            self.active_holder = None
        return True

    def _evict_or_wait(self, holder: Holder, frame: _Frame) -> None:
        """Evict slow frames from the full pool; if it stays full, the frame waits or becomes the active one.

        A frame of an address below its fair share does neither.
        """
        self._evict_slow()
        addresses = len(self._by_address)
        if self.held_bytes <= self._bytes_max:
            self._wake()
        elif addresses > 1 and self._by_address.get(frame.address, 0) <= self._bytes_max // addresses:
            return
        elif holder in self._frames:  # it was not evicted
            if self.active_holder is None:
                self.active_holder = holder
            else:
                self._waiting[holder] = None
                frame.waits_since_s = self._seconds()
                holder.wait_for_memory()

    def _evict_slow(self) -> None:
        """Close connections with slow frames until the pool is within its limit.

        The address with the most bytes comes first, and its largest frame first.
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
            self._discard(holder)
            self._metrics.partial_evictions += 1
            reason = f"{held} bytes of a request arrived at less than {self._rate_min:g} bytes/s while memory is scarce"
            log.info("closing the connection from {peer}: {reason}", peer=holder.connection.peer, reason=reason)
            holder.connection.drop(reason)

    def _wake(self) -> None:
        if self.held_bytes <= self._bytes_max:
            waiting, self._waiting, self.active_holder = self._waiting, {}, None
            for holder in waiting:
                self._resume(holder)
        elif self.active_holder is None and self._waiting:
            self.active_holder = holder = next(iter(self._waiting))
            del self._waiting[holder]
            self._resume(holder)

    def _resume(self, holder: Holder) -> None:
        frame = self._frames[holder]
        assert frame.waits_since_s is not None, "the frame waits for memory"
        frame.window_start_s += self._seconds() - frame.waits_since_s
        frame.waits_since_s = None
        holder.resume_with_memory()
