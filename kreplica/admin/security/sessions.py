"""Sessions of the dashboard: a cookie with a random ID, whose hash identifies the session in memory."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kreplica.admin.security.passwords import UserCredentials

SESSIONS_MAX = 1000
"""Maximum number of sessions of a broker; above it, the oldest one is ended."""

USER_SESSIONS_MAX = 50
"""Maximum number of sessions of one user; above it, the user's oldest one is ended."""

COOKIE_CHARACTERS_MAX = 200

CredentialsOf = Callable[[str], UserCredentials]
"""Returns the current credentials of a user."""


class Login(NamedTuple):
    """A login with verified credentials.

    :ivar user: such as ``User:alice``.
    :ivar is_super: True for a login with the token of the admin API.
    :ivar name: the user's name without type, for a login with a password.
    :ivar ends_ms: expiry of a bearer token, in milliseconds since 1970; None without one.
    """

    user: str
    is_super: bool = False
    name: str | None = None
    ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A session of one user.

    :param user: such as ``User:alice``.
    :param is_super: True if the session was opened with the token.
    :param ends_s: monotonic time at which it ends.
    :param ends_ms: the same, in milliseconds since 1970.
    :param login: the user's name without type, for a session that was opened with a password.
    :param credentials: the credentials of that user when the session was opened; the session ends when they change.
    """

    user: str
    is_super: bool
    ends_s: float
    ends_ms: int
    login: str | None = None
    credentials: UserCredentials = field(default_factory=dict, repr=False)


class Sessions:
    """The sessions of one broker, in memory only.

    :param cookie: name of the cookie; it contains the broker ID, since brokers on one host share cookies.
    :param seconds: monotonic clock.
    :param now_ms: wall clock in milliseconds since 1970.
    :param lifetime_s: time after which a session ends, unless its bearer token expires first.
    :param is_secure: True if browsers may send the cookie only over TLS.
    :param credentials_of: None if no session is opened with a password.
    :param new_id: returns a random ID that cannot be guessed; replaced in tests.
    """

    def __init__(
        self,
        cookie: str,
        seconds: Callable[[], float],
        now_ms: Callable[[], int],
        lifetime_s: float,
        *,
        is_secure: bool,
        credentials_of: CredentialsOf | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.cookie = cookie
        self._seconds = seconds
        self._now_ms = now_ms
        self._lifetime_s = lifetime_s
        self._is_secure = is_secure
        self._credentials_of = credentials_of
        self._new_id = new_id or partial(secrets.token_urlsafe, 32)
        self._sessions: dict[bytes, Session] = {}

    def lifetime_s(self, login: Login) -> float:
        """Return the time after which a new session of a login ends; not positive if its bearer token has expired."""
        if login.ends_ms is None:
            return self._lifetime_s
        return min(self._lifetime_s, (login.ends_ms - self._now_ms()) / 1000)

    def open(self, login: Login) -> tuple[Session, str]:
        """Open a session.

        :return: the session, and the value of ``Set-Cookie``.
        """
        user, name, lifetime_s = login.user, login.name, self.lifetime_s(login)
        credentials = self._credentials_of(name) if name is not None and self._credentials_of is not None else {}
        ends_s, ends_ms = self._seconds() + lifetime_s, self._now_ms() + int(lifetime_s * 1000)
        session = Session(user, login.is_super, ends_s, ends_ms, name, credentials)
        session_id = self._new_id()
        self._make_room(user)
        self._sessions[_key(session_id)] = session
        return session, self._set_cookie(session_id, int(lifetime_s))

    def _make_room(self, user: str) -> None:
        for key in [key for key in self._sessions if self._current(key) is None]:
            self.close(key)
        user_sessions = [key for key, session in self._sessions.items() if session.user == user]
        if len(user_sessions) >= USER_SESSIONS_MAX:
            self.close(user_sessions[0])
        elif len(self._sessions) >= SESSIONS_MAX:
            self.close(next(iter(self._sessions)))

    def find(self, session_id: str) -> tuple[bytes, Session] | None:
        """Return the session of a cookie and its key; None if there is none, or it has ended."""
        key = _key(session_id[:COOKIE_CHARACTERS_MAX])
        session = self._current(key)
        if session is None:
            self._sessions.pop(key, None)
            return None
        return key, session

    def get(self, key: bytes) -> Session | None:
        """Return a session by its key; None if it has ended."""
        return self._current(key)

    def close(self, key: bytes) -> None:
        """End a session; idempotent."""
        self._sessions.pop(key, None)

    @property
    def removed_cookie(self) -> str:
        """The value of ``Set-Cookie`` that removes the cookie."""
        return self._set_cookie("", 0)

    def _current(self, key: bytes) -> Session | None:
        session = self._sessions.get(key)
        if session is None or self._seconds() >= session.ends_s:
            return None
        if session.login is not None and self._credentials_of is not None:
            return session if session.credentials == self._credentials_of(session.login) else None
        return session

    def _set_cookie(self, value: str, age_s: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _key(session_id: str) -> bytes:
    """Return the hash of a session ID; the time of a comparison then reveals nothing about the ID."""
    return hashlib.sha256(session_id.encode(errors="replace")).digest()
