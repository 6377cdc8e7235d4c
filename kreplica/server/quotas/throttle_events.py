"""Records events for operators when quotas start and stop throttling a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from twisted.internet.interfaces import IDelayedCall

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE
from kreplica.runtime import Reactor
from kreplica.server.quotas.throttled_clients import ThrottledKey

STARTED, ENDED = "throttling_started", "throttling_ended"
"""Kinds of the recorded events."""

QUIET_S = 60.0
"""Time without throttling after which a client is considered no longer throttled."""

CHECK_S = 5.0
"""Interval at which the end of throttling is checked."""

STARTS_MAX, WINDOW_S = 10, 60.0
"""Maximum number of throttled clients recorded per window, and the length of the window."""

CLIENTS_MAX = 500
"""Maximum number of clients recorded as throttled at the same time; further ones are only counted."""

NAME_CHARACTERS_MAX = 100
"""Maximum length of user names and client IDs in events; longer ones, which clients may choose, are truncated."""


class Record(Protocol):
    """Adds an event to the timeline."""

    def __call__(self, kind: str, subject: str, text: str, details: Mapping[str, Any]) -> None: ...


class _Client(NamedTuple):
    """A client with all of its connections.

    :param client_id: empty if only the address is known.
    """

    quota: str
    user: str
    client_id: str
    address: str


class _Period:
    """Period of throttling of one client, starting with its first throttled request.

    :ivar quiet_from_s: end of the last throttle time.
    """

    __slots__ = ("count", "quiet_from_s", "started_s", "total_s")

    def __init__(self, now_s: float) -> None:
        self.started_s = now_s
        self.count = 0
        self.total_s = 0.0
        self.quiet_from_s = now_s


class ThrottleEvents:
    """Records one event when a quota starts to slow down a client, and one when it stops; bounded.

    A timer runs while a client is throttled.

    :param record: adds an event to the timeline.
    """

    def __init__(self, reactor: Reactor, record: Record) -> None:
        self._reactor = reactor
        self._record = record
        self._periods: dict[_Client, _Period] = {}
        self._unrecorded: set[_Client] = set()
        self._starts = 0
        self._window_ends_s = 0.0
        self._timer: IDelayedCall | None = None
        self._is_stopped = False

    def add(self, key: ThrottledKey, throttle_s: float) -> None:
        """Count a throttled request, and record the start if the client was not throttled before."""
        if self._is_stopped:
            return
        now_s = self._reactor.seconds()
        client = _Client(key.quota, key.user, key.client_id, "" if key.user else key.address)
        period = self._periods.get(client)
        if period is None:
            if not self._may_start(client, now_s):
                return
            period = self._periods[client] = _Period(now_s)
            self._record_start(client)
        period.count += 1
        period.total_s += throttle_s
        period.quiet_from_s = max(period.quiet_from_s, now_s + throttle_s)
        if self._timer is None:
            self._timer = self._reactor.callLater(CHECK_S, self._check)

    def stop(self) -> None:
        """Record no further event, because the server stops."""
        self._is_stopped = True
        self._periods.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _may_start(self, client: _Client, now_s: float) -> bool:
        """Return True if throttling of this client may be recorded; otherwise count the client."""
        if now_s >= self._window_ends_s:
            self._window_ends_s, self._starts = now_s + WINDOW_S, 0
        if self._starts < STARTS_MAX and len(self._periods) < CLIENTS_MAX:
            self._starts += 1
            return True
        if len(self._unrecorded) < CLIENTS_MAX:
            self._unrecorded.add(client)
        return False

    def _record_start(self, client: _Client) -> None:
        subject, described = _names(client)
        text = f"{described}: {_unit_noun(client)} are throttled by the quota {client.quota}"
        details = _details(client)
        unrecorded_count = len(self._unrecorded - {client})
        self._unrecorded.clear()
        if unrecorded_count:
            more = f"{unrecorded_count} more {_client_noun(unrecorded_count)}"
            text = f"{text}; since the previous record, quotas throttled {more}"
            details["unrecorded_clients"] = unrecorded_count
        self._record(STARTED, subject, text, details)

    def _check(self) -> None:
        now_s = self._reactor.seconds()
        ended = [(client, period) for client, period in self._periods.items() if period.quiet_from_s + QUIET_S <= now_s]
        for client, period in ended:
            del self._periods[client]
            self._record_end(client, period)
        self._timer = self._reactor.callLater(CHECK_S, self._check) if self._periods else None

    def _record_end(self, client: _Client, period: _Period) -> None:
        subject, described = _names(client)
        lasted_s = period.quiet_from_s - period.started_s
        text = (
            f"{described}: {_unit_noun(client)} are no longer throttled by the quota {client.quota}, which delayed "
            f"{period.count} of them within {lasted_s:.0f} s, for {period.total_s:.1f} s in total"
        )
        totals = {"count": period.count, "throttled_ms": round(period.total_s * 1000), "lasted_s": round(lasted_s)}
        self._record(ENDED, subject, text, {**_details(client), **totals})


def _names(client: _Client) -> tuple[str, str]:
    """Return the subject of an event, and the client in words, which begin with the subject."""
    if not client.user:
        subject = f"address {client.address}"
        return subject, subject
    subject = f"client {_short(client.user)}"
    return subject, f"{subject} with the client ID {_short(client.client_id)}" if client.client_id else subject


def _unit_noun(client: _Client) -> str:
    return "new connections" if client.quota == CONNECTION_CREATION_RATE else "requests"


def _client_noun(count: int) -> str:
    return "client" if count == 1 else "clients"


def _details(client: _Client) -> dict[str, Any]:
    names = {"user": _short(client.user), "client_id": _short(client.client_id), "address": client.address}
    return {"quota": client.quota, **{name: value for name, value in names.items() if value}}


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}..."
