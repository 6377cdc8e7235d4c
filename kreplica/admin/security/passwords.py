"""Verifies passwords with the SCRAM credentials of users.

The broker stores only keys that are derived from a password, so each verification derives them again. This takes
milliseconds, so it runs in a thread, and a success is remembered for a short time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from twisted.internet.defer import DeferredSemaphore

from kreplica.admin.http.problems import Problem
from kreplica.runtime.offload import Offload
from kreplica.security.sasl.scram import HASHES, ITERATIONS_MIN, SCRAM_SHA_512, SERVER_ITERATIONS_MAX, ScramCredential

REMEMBERED_S = 60.0
"""Time for which a verified password is accepted without deriving its keys again."""

REMEMBERED_MAX = 1000
PENDING_MAX = 32
"""Maximum number of verifications that run or wait for a thread."""

THREADS_MAX = 2
"""Maximum number of verifications that run at a time, so that threads stay free for writes to disk."""

CREDENTIAL_CHARACTERS_MAX = 1000
"""Maximum length of a user name or password."""

UserCredentials = Mapping[str, ScramCredential]
"""The credentials of one user by mechanism."""

_UNKNOWN: UserCredentials = {
    SCRAM_SHA_512: ScramCredential(b"no user", secrets.token_bytes(64), b"", ITERATIONS_MIN),
}
"""Credentials that match no password; used if no user has credentials."""


class Credentials(Protocol):
    """The current SCRAM credentials."""

    @property
    def users(self) -> Collection[str]:
        """Names of the users that have credentials."""

    def mechanisms_of(self, user: str) -> UserCredentials:
        """Return the credentials of a user; empty if there are none."""


class PasswordVerifier:
    """Verifies names and passwords.

    :param seconds: monotonic clock.
    """

    def __init__(self, credentials: Credentials, offload: Offload, seconds: Callable[[], float]) -> None:
        self._credentials = credentials
        self._offload = offload
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, tuple[float, UserCredentials]] = {}
        self._pending = 0
        self._threads = DeferredSemaphore(THREADS_MAX)

    def credentials_of(self, user: str) -> UserCredentials:
        """Return the current credentials of a user, which change with the password."""
        return dict(self._credentials.mechanisms_of(user))

    def is_remembered(self, user: str, password: str) -> bool:
        """Return True if this password was verified recently and the user's credentials have not changed."""
        until_s, credentials = self._remembered.get(self._digest(user, password), (0.0, {}))
        return self._seconds() < until_s and bool(credentials) and credentials == self.credentials_of(user)

    async def verify(self, user: str, password: str) -> bool:
        """Return True if the password is that of the user.

        :raise Problem: 503 if too many verifications are pending.
        """
        if max(len(user), len(password)) > CREDENTIAL_CHARACTERS_MAX:
            return False
        if self._pending >= PENDING_MAX:
            raise Problem(
                503,
                "OVERLOADED",
                f"{self._pending} passwords are being verified, which is the limit",
                what_to_do="Retry in a moment.",
            )
        credentials = self.credentials_of(user)
        self._pending += 1
        try:
            compared = credentials or self._decoy(user)
            matches = await self._threads.run(self._offload.run, _matches, compared, password)
        finally:
            self._pending -= 1
        # The credentials may have changed in the meantime.
        if not matches or not credentials or credentials != self.credentials_of(user):
            return False
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[self._digest(user, password)] = (self._seconds() + REMEMBERED_S, credentials)
        return True

    def _decoy(self, user: str) -> UserCredentials:
        """Return the credentials of another user, to compare with if a user has none; for a given name, always the
        same.

        Verification then takes as long as for a wrong password, whatever mechanisms and iterations are in use.
        """
        users = list(self._credentials.users)
        number = int.from_bytes(self._digest(user, "")[:8], "big")
        return self.credentials_of(users[number % len(users)]) if users else _UNKNOWN

    def _digest(self, user: str, password: str) -> bytes:
        """Return a keyed hash, so that passwords are not kept in memory."""
        name = user.encode(errors="surrogateescape")
        text = len(name).to_bytes(4, "big") + name + password.encode(errors="surrogateescape")
        return hmac.digest(self._key, text, "sha256")


def _matches(credentials: UserCredentials, password: str) -> bool:
    """Return True if the password matches the keys of any mechanism; blocking."""
    matches = False
    for mechanism, credential in credentials.items():
        if 0 < credential.iterations <= SERVER_ITERATIONS_MAX:
            name = HASHES[mechanism]
            secret = password.encode(errors="surrogateescape")
            salted = hashlib.pbkdf2_hmac(name, secret, credential.salt, credential.iterations)
            derived = ScramCredential.of_salted_password(mechanism, salted, credential.salt, credential.iterations)
            matches |= hmac.compare_digest(derived.stored_key, credential.stored_key)
    return matches
