"""SCRAM credentials of users, as the broker has read them from ``/config/users``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from twisted.logger import Logger

from kreplica.security.sasl.scram import HASHES, ScramCredential

log = Logger()


class ScramCredentials:
    """SCRAM credentials, by mechanism and user."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[str, ScramCredential]] = {}

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user; None if there is none."""
        return self._by_user.get(user, {}).get(mechanism)

    def mechanisms_of(self, user: str) -> Mapping[str, ScramCredential]:
        """Return the credentials of a user, by mechanism."""
        return self._by_user.get(user, {})

    @property
    def users(self) -> Collection[str]:
        """Names of the users that have credentials."""
        return self._by_user.keys()

    def apply(self, user: str, config: Mapping[str, str]) -> None:
        """Apply the configuration of a user; settings other than credentials are ignored."""
        credentials = {}
        for mechanism in HASHES:
            if mechanism in config:
                try:
                    credentials[mechanism] = ScramCredential.parse(config[mechanism])
                except ValueError as error:
                    log.error(
                        "ignored a malformed SCRAM credential of user {user!r} ({mechanism}): {error}",
                        user=user,
                        mechanism=mechanism,
                        error=str(error),
                    )
        if credentials:
            self._by_user[user] = credentials
        else:
            self._by_user.pop(user, None)

    def retain(self, users: Collection[str]) -> None:
        """Drop the credentials of all users except these."""
        for user in self._by_user.keys() - set(users):
            del self._by_user[user]
