"""Pending requests and unread responses of all connections, by client address and in total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics

log = Logger()

STEP_REQUESTS = 256
"""Number of requests of one address after which the broker's total is computed again, so that each address can exceed
the total limit by at most this many requests."""


class Holder(Protocol):
    """A connection with responses that its client has not read."""

    peer: str

    @property
    def is_control(self) -> bool: ...

    def drop(self, reason: str) -> None: ...


class _UnreadResponses:
    """Unread responses of one connection.

    :ivar size: bytes in memory; ranges of files do not count.
    :ivar last_read_s: reactor time at which the client last read some of them, or the first one was sent.
    """

    __slots__ = ("last_read_s", "load", "size")

    def __init__(self, load: AddressLoad, now_s: float) -> None:
        self.load = load
        self.size = 0
        self.last_read_s = now_s


class AddressLoad:
    """Load of the connections of one client address.

    :ivar connections: number of open connections.
    :ivar requests: number of pending requests; its connections update it.
    :ivar check_at: at or above this number of requests, each new request calls ``check``.
    :ivar is_full: each connection of the address may have only one pending request.
    :ivar relax_at: number of requests at which a full address calls ``relax``.
    :ivar held_bytes: bytes of unread responses.
    """

    __slots__ = ("_loads", "address", "check_at", "connections", "held_bytes", "is_full", "relax_at", "requests")

    def __init__(self, loads: ClientLoads, address: str) -> None:
        self._loads = loads
        self.address = address
        self.connections = 0
        self.requests = 0
        self.held_bytes = 0
        self.is_full = False
        self.relax_at = 0
        self.check_at = 0
        self.relax()

    def check(self) -> bool:
        """Return True if the address has reached its limit of pending requests."""
        if not self.is_full:
            requests_max = self._loads.requests_max_of(self)
            if self.requests < requests_max:
                self.relax()
                return False
            self.is_full = True
            self.relax_at = requests_max // 2
            self.check_at = 0
        return True

    def relax(self) -> None:
        """Let each connection have several pending requests again."""
        self.is_full = False
        self.check_at = min(self.requests + STEP_REQUESTS, self._loads.bounds.address_requests_outstanding_max)

    def set_unread_bytes(self, connection: Holder, size: int, *, was_read: bool) -> None:
        """Set the bytes of unread responses of a connection.

        :param was_read: the client has just read some of them.
        """
        self._loads.set_unread_bytes(self, connection, size, was_read=was_read)

    def closed(self, connection: Holder, requests: int) -> None:
        """Remove a closed connection.

        :param requests: number of its pending requests.
        """
        self.requests -= requests
        self.set_unread_bytes(connection, 0, was_read=False)
        self._loads.closed(self)


class ClientLoads:
    """Loads of all client addresses of one broker.

    Connections of the controller and of followers are counted but never paused or closed, because other brokers
    wait for them.

    :ivar held_bytes: bytes of unread responses of all connections.
    """

    def __init__(self, bounds: Bounds, metrics: ServerMetrics, seconds: Callable[[], float]) -> None:
        self.bounds = bounds
        self.held_bytes = 0
        self._metrics = metrics
        self._seconds = seconds
        self._by_address: dict[str, AddressLoad] = {}
        self._unread: dict[Holder, _UnreadResponses] = {}

    @property
    def requests(self) -> int:
        """Number of pending requests of all connections."""
        return sum(load.requests for load in self._by_address.values())

    def opened(self, address: str) -> AddressLoad:
        """Count a new connection of an address and return the load of the address."""
        load = self._by_address.get(address)
        if load is None:
            load = self._by_address[address] = AddressLoad(self, address)
        load.connections += 1
        return load

    def closed(self, load: AddressLoad) -> None:
        """Remove a connection of an address."""
        load.connections -= 1
        if not load.connections:
            del self._by_address[load.address]

    def requests_max_of(self, load: AddressLoad) -> int:
        """Return the number of pending requests that an address may currently have."""
        bounds = self.bounds
        if self.requests < bounds.broker_requests_outstanding_max:
            return bounds.address_requests_outstanding_max
        share = max(bounds.broker_requests_outstanding_max // len(self._by_address), 1)
        return min(share, bounds.address_requests_outstanding_max)

    def set_unread_bytes(self, load: AddressLoad, connection: Holder, size: int, *, was_read: bool) -> None:
        """See ``AddressLoad.set_unread_bytes``."""
        unread = self._unread.get(connection)
        if unread is None:
            if not size:
                return
            unread = self._unread[connection] = _UnreadResponses(load, self._seconds())
        elif was_read:
            unread.last_read_s = self._seconds()
        growth = size - unread.size
        unread.size = size
        load.held_bytes += growth
        self.held_bytes += growth
        if not size:
            del self._unread[connection]
        elif growth > 0:
            self._enforce_limits(load)

    def sweep(self) -> None:
        """Close connections whose clients stopped reading, if an address or the broker exceeds its limit."""
        for load in {unread.load: None for unread in self._unread.values()}:
            self._enforce_limits(load)

    def _enforce_limits(self, load: AddressLoad) -> None:
        bounds = self.bounds
        if load.held_bytes > bounds.address_response_bytes_max:
            of_address = {connection: unread for connection, unread in self._unread.items() if unread.load is load}
            self._close_some(of_address, lambda: load.held_bytes, bounds.address_response_bytes_max)
        if self.held_bytes > bounds.broker_response_bytes_max:
            self._close_some(dict(self._unread), lambda: self.held_bytes, bounds.broker_response_bytes_max)

    def _close_some(
        self, holders: dict[Holder, _UnreadResponses], held_bytes: Callable[[], int], bytes_max: int
    ) -> None:
        """Close stalled connections: first those of the address that holds the most bytes, in order of size.

        Above twice the limit, connections that still read are closed too.
        """
        stalled_before_s = self._seconds() - self.bounds.partial_stall_s
        order = sorted(
            (each for each in holders.items() if not each[0].is_control),
            key=lambda each: (each[1].load.held_bytes, each[1].size),
            reverse=True,
        )
        for limit, only_stalled in ((bytes_max, True), (2 * bytes_max, False)):
            for connection, unread in order:
                if held_bytes() <= limit:
                    break
                if connection in self._unread and (unread.last_read_s <= stalled_before_s or not only_stalled):
                    self._metrics.unread_evictions += 1
                    reason = f"the client has not read {unread.size} bytes of responses, and memory is scarce"
                    log.info("closing the connection from {peer}: {reason}", peer=connection.peer, reason=reason)
                    connection.drop(reason)
