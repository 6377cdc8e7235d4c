"""Sessions and their expiry, without I/O; the time is a parameter.

A session expires if its client sends nothing for the session timeout.  Sessions are durable, but their last activity
is not: after a restart, clients have the whole timeout to reconnect, as with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

PASSWORD_SIZE_BYTES = 16
NO_PASSWORD = bytes(PASSWORD_SIZE_BYTES)
_ID_MASK = (1 << 56) - 1


class SessionRow(NamedTuple):
    """The durable part of a session."""

    session_id: int
    timeout_ms: int
    password: bytes


class Session:
    """One session.

    :ivar last_heard: time of the client's last request, in seconds on the reactor's clock.
    """

    __slots__ = ("last_heard", "password", "session_id", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int, password: bytes, last_heard: float) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.password = password
        self.last_heard = last_heard

    def row(self) -> SessionRow:
        """Return the durable part of the session."""
        return SessionRow(self.session_id, self.timeout_ms, self.password)

    def __repr__(self) -> str:
        return f"session 0x{self.session_id:x}"


class Sessions:
    """All live sessions.

    :param tick_time_ms: requested timeouts are clamped to between 2 and 20 ticks.
    :param random: source of passwords; clients must not be able to predict the passwords of other sessions.
    :ivar changed: IDs of sessions opened, changed or closed since the owner last replaced this set.
    """

    def __init__(self, tick_time_ms: int, random: Random) -> None:
        self.timeout_ms_min = 2 * tick_time_ms
        self.timeout_ms_max = 20 * tick_time_ms
        self.by_id: dict[int, Session] = {}
        self.changed: set[int] = set()
        self._random = random
        self._last_id = 0

    def restore(self, rows: Iterable[SessionRow], now: float) -> None:
        """Restore sessions from a store."""
        for row in rows:
            self.by_id[row.session_id] = Session(*row, now)

    def open(self, timeout_ms: int, wall_clock_ms: int, now: float) -> Session:
        """Open a session.

        :param timeout_ms: requested timeout, which ``negotiate`` clamps.
        :param wall_clock_ms: makes session IDs unique across restarts of this server.
        """
        self._last_id = max(self._last_id + 1, (wall_clock_ms << 16) & _ID_MASK)
        while self._last_id in self.by_id:
            self._last_id += 1
        password = self._random.randbytes(PASSWORD_SIZE_BYTES)
        session = Session(self._last_id, self.negotiate(timeout_ms), password, now)
        self.by_id[session.session_id] = session
        self.changed.add(session.session_id)
        return session

    def reattach(self, session_id: int, password: bytes, timeout_ms: int, now: float) -> Session | None:
        """Resume a session; return None if it has ended or the password is wrong."""
        session = self.by_id.get(session_id)
        if session is None or session.password != password:
            return None
        session.last_heard = now
        negotiated = self.negotiate(timeout_ms)
        if negotiated != session.timeout_ms:
            session.timeout_ms = negotiated
            self.changed.add(session_id)
        return session

    def negotiate(self, timeout_ms: int) -> int:
        """Clamp a requested timeout to the allowed range."""
        return min(max(timeout_ms, self.timeout_ms_min), self.timeout_ms_max)

    def close(self, session_id: int) -> Session | None:
        """Close a session; return None if it has already ended."""
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self.changed.add(session_id)
        return session

    def expired(self, now: float) -> list[Session]:
        """Return the sessions whose timeout has passed."""
        return [each for each in self.by_id.values() if (now - each.last_heard) * 1000 > each.timeout_ms]

    def extend(self, silence_s: float) -> None:
        """Extend all sessions by the time during which this process could not receive requests."""
        for session in self.by_id.values():
            session.last_heard += silence_s
