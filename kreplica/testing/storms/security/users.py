"""Users of a simulated cluster, whose passwords change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from kreplica.cluster import documents, znodes
from kreplica.security.sasl.credentials import PasswordCredentials
from kreplica.security.sasl.scram import HASHES, ITERATIONS_MIN, SCRAM_SHA_256, ScramCredential
from kreplica.service.composition.broker import Broker
from kreplica.testing.storms.security.tracked import Source

SALT_BYTES = 16
MECHANISM_CODES = {SCRAM_SHA_256: 1}
"""Codes of KIP-554 that are not 2."""


class User:
    """One user with its passwords.

    :param mechanism: a SCRAM mechanism.
    :ivar client_password: the password that the user's clients have; empty before the first.
    """

    def __init__(self, name: str, mechanism: str) -> None:
        self.name = name
        self.mechanism = mechanism
        self.passwords: list[str] = []
        self.client_password = ""
        self._by_salt: dict[bytes, str] = {}

    @property
    def principal(self) -> str:
        return f"User:{self.name}"

    def new_password(self, random: Random) -> tuple[str, dict[str, Any]]:
        """Return a new password, and the row of AlterUserScramCredentials that sets it."""
        password = f"password {len(self.passwords) + 1} of {self.name}"
        self.passwords.append(password)
        salt = random.randbytes(SALT_BYTES)
        self._by_salt[salt] = password
        salted = hashlib.pbkdf2_hmac(HASHES[self.mechanism], password.encode(), salt, ITERATIONS_MIN)
        row = {"name": self.name, "mechanism": self.mechanism_code, "iterations": ITERATIONS_MIN}
        return password, {**row, "salt": salt, "salted_password": salted}

    @property
    def mechanism_code(self) -> int:
        return MECHANISM_CODES.get(self.mechanism, 2)

    def credentials(self, random: Random) -> Callable[[], PasswordCredentials]:
        """Return a function that returns the current credentials of the user's clients."""
        by_password: dict[str, PasswordCredentials] = {}

        def current() -> PasswordCredentials:
            password = self.client_password
            if password not in by_password:
                by_password[password] = PasswordCredentials(self.mechanism, self.name, password, random=random)
            return by_password[password]

        return current

    def old_credentials(self, random: Random) -> Callable[[], PasswordCredentials]:
        """Return a function that returns credentials with a password that was replaced, if there is one."""

        def old() -> PasswordCredentials:
            password = random.choice(self.passwords[:-1] or self.passwords)
            return PasswordCredentials(self.mechanism, self.name, password, random=random)

        return old

    # --- for checks --------------------------------------------------------------------------------------------------

    def password_of(self, credential: ScramCredential | None) -> str | None:
        """Return the password of a stored credential."""
        return None if credential is None else self._by_salt[credential.salt]

    def label_of(self, password: str | None) -> str:
        """Return a description of a password, for error messages."""
        return "no password" if password is None else password

    def credentials_in_zookeeper(self) -> Source:
        path = znodes.config_path("users", self.name)

        def decode(data: bytes | None) -> dict[str, ScramCredential]:
            config = documents.decode_config(path, data) if data else {}
            return {name: ScramCredential.parse(config[name]) for name in HASHES if name in config}

        def reader(broker: Broker) -> Callable[[], Any]:
            return partial(broker.dynamic_settings.scram_credentials.mechanisms_of, self.name)

        return Source(f"the credentials of {self.name}", path, decode, reader)
