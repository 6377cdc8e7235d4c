"""Credentials of a client, from the settings of Java clients."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from kreplica.errors import SettingsError
from kreplica.security.sasl.exchange import ClientExchange
from kreplica.security.sasl.jaas import parse_jaas
from kreplica.security.sasl.plain import PLAIN, PlainClient
from kreplica.security.sasl.scram import HASHES, SaltedPasswords, ScramClient

MECHANISMS = (PLAIN, *HASHES)
"""The supported mechanisms."""


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """Mechanism, user and password of a client."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    _salted: SaltedPasswords = field(default_factory=dict, repr=False, compare=False)

    def new_exchange(self) -> ClientExchange:
        """Begin an authentication."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        nonce = partial(secrets.token_urlsafe, 24)
        return ScramClient(self.mechanism, self.user, self.password, nonce, self._salted)


def check_mechanism(name: str, setting: str) -> str:
    """Return the name of a supported mechanism.

    :param setting: for the error.
    :raise SettingsError: the mechanism is not supported.
    """
    mechanism = name.strip().upper()
    if mechanism not in MECHANISMS:
        raise SettingsError(f"{setting}={name}: the mechanism is not supported, only {', '.join(MECHANISMS)}")
    return mechanism


def credentials_of(mechanism: str, jaas: str | None, setting: str) -> SaslCredentials:
    """Return the credentials in a JAAS configuration.

    :param setting: name of the setting with the JAAS configuration, for errors.
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
    return SaslCredentials(mechanism, options["username"], options["password"])
