"""Limits on the number and creation rate of connections (KIP-402, KIP-612)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from twisted.logger import Logger

from kreplica.server.protocol.limits import UNLIMITED
from kreplica.server.quotas.throttle_time import MeasuredRate, evict_usages

log = Logger()

ADDRESSES_MAX = 10_000
"""Maximum number of IP addresses whose connection rates are measured."""


class ListenerLimit(NamedTuple):
    """Limits of one listener.

    :ivar connections: ``listener.name.L.max.connections``.
    :ivar rate: ``listener.name.L.max.connection.creation.rate``.
    """

    connections: int = UNLIMITED
    rate: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Limits that a broker's settings define.

    :param connections: ``max.connections``.
    :param rate: ``max.connection.creation.rate``.
    :param per_address: ``max.connections.per.ip``.
    :param listeners: limits by listener; a listener that is missing is not limited.
    :param protected: the listener for other brokers, exempt from the limits of the whole broker; None if it is the
        only listener.
    """

    connections: int = UNLIMITED
    rate: int = UNLIMITED
    per_address: int = UNLIMITED
    listeners: Mapping[str, ListenerLimit] = field(default_factory=dict)
    protected: str | None = None


class Decision(Enum):
    """Treatment of a new connection.

    ``REFUSED``: the connection is closed at once.  ``HELD``: it is not served, and closed after ``Admission.delay_s``.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    HELD = "held"


class Admission(NamedTuple):
    """Decision about a new connection.

    :ivar delay_s: time until a held connection is closed; otherwise, time for which the listener accepts no other one.
    """

    decision: Decision
    delay_s: float = 0.0


class ListenerCounters:
    """Connections of one listener.

    :ivar open: connections that are open.
    :ivar accepted: connections accepted since the start.
    :ivar delays: number of times that the listener stopped accepting because of a rate.
    :ivar delayed_s: total duration of these pauses.
    :ivar held: connections that were not served because of the rate of their address.
    :ivar rate: connections per second.
    """

    __slots__ = ("accepted", "delayed_s", "delays", "held", "open", "rate")

    def __init__(self, rate: MeasuredRate) -> None:
        self.open = 0
        self.accepted = 0
        self.delays = 0
        self.delayed_s = 0.0
        self.held = 0
        self.rate = rate


class ConnectionLimits:
    """Accepts, holds or refuses new connections of a broker, and counts the open ones.

    Addresses are in the form that ``cluster.quotas.plain_address`` returns.

    :param seconds: clock of the reactor.
    :param windows: number and length in seconds of the windows of rates; no delay is longer than one window.
    :ivar changed: called after the limits defined by settings have changed.
    :ivar slots_changed: called after a connection has opened or closed, if there are limits.
    :ivar on_held: called with the address of a connection that is not served, and the time for which it is held.
    :ivar listeners: counters by listener.
    :ivar open: open connections of all listeners.
    :ivar rate: connections per second of all listeners but the protected one.
    :ivar excess_closed: connections closed because connections of other brokers took their slots.
    :ivar is_limited: True if the number or rate of connections is limited for the broker or for a listener.
    """

    def __init__(self, seconds: Callable[[], float], windows: tuple[int, float] = (11, 1.0)) -> None:
        self.settings = ConnectionSettings()
        self.changed: Callable[[], object] = lambda: None
        self.slots_changed: Callable[[], object] = lambda: None
        self.on_held: Callable[[str, float], object] = lambda *_: None
        self.listeners: dict[str, ListenerCounters] = {}
        self.rate = MeasuredRate(UNLIMITED, *windows)
        self.open = 0
        self.excess_closed = 0
        self.is_limited = False
        self._seconds = seconds
        self._windows = windows
        self._delay_s_max = windows[1]
        self._by_address: dict[str, int] = {}
        self._overrides: Mapping[str, int] = {}
        self._address_rates: Mapping[str, float] = {}
        self._address_rate = float(UNLIMITED)
        self._rates: dict[str, MeasuredRate] = {}

    # --- limits ------------------------------------------------------------------------------------------------------

    def configure(self, settings: ConnectionSettings) -> None:
        """Replace the limits defined by settings."""
        self.settings = settings
        self.rate.limit = float(settings.rate)
        for name, counters in self.listeners.items():
            counters.rate.limit = float(self._limit(name).rate)
        limits = (ListenerLimit(settings.connections, settings.rate), *settings.listeners.values())
        self.is_limited = any(limit != ListenerLimit() for limit in limits)
        self.changed()

    def override_addresses(self, overrides: Mapping[str, int]) -> None:
        """Replace ``max.connections.per.ip.overrides``: maximum numbers by IP address."""
        self._overrides = overrides

    def limit_addresses(self, rates: Mapping[str, float], default: float | None) -> None:
        """Replace the ``connection_creation_rate`` of IP addresses.

        :param default: the rate of all other addresses; None if they are not limited.
        """
        self._address_rates = rates
        self._address_rate = float(UNLIMITED) if default is None else default
        for address in [address for address in self._rates if self._rate_of(address) == UNLIMITED]:
            del self._rates[address]

    def _limit(self, listener: str) -> ListenerLimit:
        return self.settings.listeners.get(listener, ListenerLimit())

    def _rate_of(self, address: str) -> float:
        return self._address_rates.get(address, self._address_rate)

    # --- connections -------------------------------------------------------------------------------------------------

    def has_slot(self, listener: str) -> bool:
        """Return True if another connection of the listener may be accepted now."""
        if self.counters(listener).open >= self._limit(listener).connections:
            return False
        return listener == self.settings.protected or self.open < self.settings.connections

    @property
    def excess(self) -> int:
        """The number of connections that must be closed, because connections of other brokers took their slots."""
        return max(self.open - self.settings.connections, 0)

    def admit(self, listener: str, address: str) -> Admission:
        """Decide about a connection that the operating system has accepted; if it is admitted, call ``opened`` next."""
        now_s = self._seconds()
        counters = self.counters(listener)
        counters.accepted += 1
        held_s = self._held_s(address, now_s)
        if held_s > 0.0:
            counters.held += 1
            self.on_held(address, held_s)
            log.debug("holding a connection from {address} for {seconds:.1f} s", address=address, seconds=held_s)
            return Admission(Decision.HELD, held_s)
        delay_s = counters.rate.record(1.0, now_s)
        if listener != self.settings.protected:
            delay_s = max(self.rate.record(1.0, now_s), delay_s)
        delay_s = min(delay_s, self._delay_s_max)
        if delay_s > 0.0:
            counters.delays += 1
            counters.delayed_s += delay_s
        connections_max = self._overrides.get(address, self.settings.per_address)
        if self._by_address.get(address, 0) >= connections_max:
            reason = f"it has {connections_max} connections open (max.connections.per.ip)"
            log.info("refusing a connection from {address}: {reason}", address=address, reason=reason)
            return Admission(Decision.REFUSED, delay_s)
        return Admission(Decision.ACCEPTED, delay_s)

    def _held_s(self, address: str, now_s: float) -> float:
        """Record a connection in the rate of its address; if the limit is exceeded, return how long to hold it."""
        limit = self._rate_of(address)
        if limit >= UNLIMITED:
            return 0.0
        rate = self._rates.get(address)
        if rate is None:
            evict_usages(self._rates, ADDRESSES_MAX, now_s)
            rate = self._rates[address] = MeasuredRate(limit, *self._windows)
        rate.limit = limit
        held_s = rate.record(1.0, now_s)
        if held_s > 0.0:
            rate.record(-1.0, now_s)  # connections that are not served do not count
        return min(held_s, self._delay_s_max)

    def opened(self, listener: str, address: str) -> None:
        """Count an accepted connection."""
        self.open += 1
        self.counters(listener).open += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        if self.is_limited:
            self.slots_changed()

    def closed(self, listener: str, address: str) -> None:
        """Remove a connection."""
        self.open -= 1
        self.counters(listener).open -= 1
        remaining_count = self._by_address[address] - 1
        if remaining_count:
            self._by_address[address] = remaining_count
        else:
            del self._by_address[address]
        if self.is_limited:
            self.slots_changed()

    def counters(self, listener: str) -> ListenerCounters:
        """Return the counters of a listener."""
        counters = self.listeners.get(listener)
        if counters is None:
            rate = MeasuredRate(float(self._limit(listener).rate), *self._windows)
            counters = self.listeners[listener] = ListenerCounters(rate)
        return counters
