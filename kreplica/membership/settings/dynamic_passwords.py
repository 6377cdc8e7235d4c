"""Passwords in the dynamic settings of a broker: encrypted in ZooKeeper, as Kafka stores them (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Runtime
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.names import broker_setting

if TYPE_CHECKING:
    from kreplica.security.passwords import PasswordEncoder

log = Logger()

SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"


class _Password(NamedTuple):
    """A decrypted password; ``is_old`` is True if it is encrypted with the old secret."""

    text: str
    is_old: bool


class DynamicPasswords:
    """Encrypts and decrypts the passwords among a broker's dynamic settings."""

    def __init__(self, runtime: Runtime, settings: BrokerSettings) -> None:
        self._offload = runtime.offload
        self._settings = settings
        self._decrypted: dict[str, _Password] = {}
        """Cache of the current settings' passwords, by encrypted text, because decryption takes milliseconds."""

    @property
    def are_old(self) -> bool:
        """True if a password in the last decrypted settings is encrypted with the old secret."""
        return any(password.is_old for password in self._decrypted.values())

    async def decrypted(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings with decrypted passwords; one that cannot be decrypted is logged and left out."""
        found = dict(settings)
        current = {}
        for name in filter(is_password, settings):
            encrypted = settings[name]
            try:
                password = current[encrypted] = self._decrypted.get(encrypted) or await self._decrypt(encrypted)
            except ValueError as error:
                log.error("{name} in ZooKeeper is ignored: {error}", name=name, error=str(error))
                del found[name]
            else:
                found[name] = password.text
        self._decrypted = current
        return found

    async def encrypted(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings with encrypted passwords; those that have not changed keep their encrypted text.

        :raise KafkaError: INVALID_REQUEST if there is no secret.
        """
        kept = {password.text: text for text, password in self._decrypted.items() if not password.is_old}
        result = dict(settings)
        for name in filter(is_password, settings):
            text = settings[name]
            if text not in kept:
                encoder = self._encoder(SECRET)
                if encoder is None:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"{name} would be stored in ZooKeeper: set {SECRET}, from which its encryption key is derived, "
                        "in the broker's file, and restart the broker",
                    )
                kept[text] = await self._offload.run(encoder.encode, text)
            result[name] = kept[text]
        return result

    async def _decrypt(self, encrypted: str) -> _Password:
        """Decrypt a password.

        :raise ValueError: there is no secret, or the value was encrypted with another one.
        """
        encoder, old = self._encoder(SECRET), self._encoder(OLD_SECRET)
        if encoder is None:
            raise ValueError(f"it is encrypted, but {SECRET} is not set")
        try:
            return _Password(await self._offload.run(encoder.decode, encrypted), is_old=False)
        except ValueError:
            if old is None:
                raise
            return _Password(await self._offload.run(old.decode, encrypted), is_old=True)

    def _encoder(self, secret_name: str) -> PasswordEncoder | None:
        settings = self._settings
        if not settings[secret_name]:
            return None
        # Imported here because most brokers have no passwords in dynamic settings.
        from kreplica.security.passwords import DEFAULT_KEY_FACTORY, PasswordEncoder

        return PasswordEncoder(
            secret=settings[secret_name],
            cipher=settings["password.encoder.cipher.algorithm"],
            key_factory=settings["password.encoder.keyfactory.algorithm"] or DEFAULT_KEY_FACTORY,
            key_bits=settings["password.encoder.key.length"],
            iterations=settings["password.encoder.iterations"],
        )


def is_password(name: str) -> bool:
    """Return True if the value of a broker setting is encrypted in ZooKeeper."""
    setting = broker_setting(name)
    return setting is not None and setting.sensitive
