"""A client's credentials, with settings named as in Java clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random, SystemRandom
from typing import Protocol

from kreplica.errors import KreplicaError, SettingsError
from kreplica.security.sasl.exchange import ClientExchange
from kreplica.security.sasl.jaas import parse_jaas
from kreplica.security.sasl.plain import PLAIN, PlainClient
from kreplica.security.sasl.scram import HASHES, TOKEN_AUTH, SaltedPasswords, ScramClient, random_nonce


class SaslCredentials(Protocol):
    """Credentials of a client, for all its connections."""

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""

    @property
    def user(self) -> str:
        """Name of the client in error messages."""

    async def new_exchange(self) -> ClientExchange:
        """Begin an authentication.

        :raise CredentialsUnavailable: the credentials could not be obtained.
        """


class CredentialsUnavailable(KreplicaError):
    """Credentials could not be obtained, for example from a token endpoint; the message contains no secret.

    :ivar retriable: False if another attempt would fail too.
    """

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


@dataclass(frozen=True, slots=True)
class PasswordCredentials:
    """Mechanism, user and password of a client.

    :param uses_token: True if the user is the ID of a delegation token, and the password its secret (KIP-48).
    :param random: source of nonces, which must be unpredictable; only a simulation may use another generator.
    """

    mechanism: str
    user: str
    password: str = field(repr=False)
    uses_token: bool = False
    random: Random = field(default_factory=SystemRandom, repr=False, compare=False)
    _salted: SaltedPasswords = field(default_factory=dict, repr=False, compare=False)

    async def new_exchange(self) -> ClientExchange:
        """Begin an authentication."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        nonce = partial(random_nonce, self.random)
        return ScramClient(
            self.mechanism, self.user, self.password, nonce, self._salted, uses_token=self.uses_token
        )


def credentials_of(mechanism: str, jaas: str | None, setting: str) -> PasswordCredentials:
    """Return the credentials in a JAAS configuration.

    :param setting: name of the setting with the JAAS configuration, for error messages.
    :raise SettingsError: it is missing or malformed, or has no user and password.
    """
    if not jaas:
        raise SettingsError(f"{setting} is not set: {mechanism} needs a login module with username and password")
    try:
        options: Mapping[str, str] = parse_jaas(jaas).options
    except ValueError as error:
        raise SettingsError(f"{setting}: {error}") from None
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise SettingsError(f"{setting}: the login module has no {' and no '.join(missing)}")
    uses_token = options.get(TOKEN_AUTH, "").lower() == "true"
    if uses_token and mechanism not in HASHES:
        raise SettingsError(f"{setting}: {TOKEN_AUTH} needs {' or '.join(HASHES)}, not {mechanism}")
    return PasswordCredentials(mechanism, options["username"], options["password"], uses_token)
