"""Files and settings of a standalone cluster with TLS, SASL and ACLs (``standalone --secured``).

The first start creates the files, in the subdirectory ``security`` of the data directory; later starts use them again:

* ``ca.pem``, ``ca.key``, ``broker.pem``: a certificate authority, and the brokers' certificate
* ``broker-password``, ``admin-password``, ``admin-token``: secrets of the brokers, the user ``admin`` and the admin API
* ``token-key``: secret from which the secrets of delegation tokens are computed
* ``coordinator-password``: the brokers' password for the embedded ZooKeeper server, which accepts no other client
* ``admin.properties``: client settings for the user ``admin``
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kreplica.errors import SettingsError, reason_of
from kreplica.zookeeper.embedded.settings import AnonymousClients, ZooKeeperServerSettings

if TYPE_CHECKING:
    from kreplica.service.composition.broker import Broker

ADMIN, BROKER = "admin", "broker"
DAYS = 3650
SECRET_BYTES = 24
SALT_BYTES = 18
ITERATIONS = 8192
HOSTS = ("localhost", "127.0.0.1", "::1")

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


class SecuredCluster:
    """The secrets and certificates of one data directory; created if they do not exist.

    :raise SettingsError: a file cannot be read or created.
    """

    def __init__(self, directory: Path, advertised_host: str) -> None:
        # Imported here because it imports OpenSSL.
        from kreplica.security.tls.development_ca import create_certificate, open_authority

        self.directory = directory
        authority = open_authority(directory, DAYS)
        if not (directory / f"{BROKER}.pem").exists():
            hosts = tuple(dict.fromkeys((*HOSTS, advertised_host)))
            create_certificate(directory, authority, BROKER, hosts, DAYS)
        self._broker_password = _secret(directory / "broker-password")
        self.admin_password = _secret(directory / "admin-password")
        self._coordinator_password = _secret(directory / "coordinator-password")
        self._token_key = _secret(directory / "token-key")
        _secret(directory / "admin-token")
        _write_if_absent(directory / "admin.properties", self._client_properties())

    def zookeeper_settings(self) -> ZooKeeperServerSettings:
        """Return the settings of the embedded ZooKeeper server, which allow only the brokers to use the znodes."""
        return ZooKeeperServerSettings(users={BROKER: self._coordinator_password}, anonymous=AnonymousClients.NONE)

    def settings(self, listener: str, advertised: str) -> Mapping[str, str]:
        """Return the settings of a broker.

        :param listener: HOST:PORT to listen on.
        :param advertised: HOST:PORT to advertise.
        """
        place, password = self.directory, self._broker_password
        return {
            "listeners": f"SASL_SSL://{listener}",
            "advertised.listeners": f"SASL_SSL://{advertised}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_LOGIN} required username="{BROKER}" '
            f'password="{password}" user_{BROKER}="{password}";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{place}/{BROKER}.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{place}/ca.pem",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER};User:{ADMIN}",
            "delegation.token.secret.key": self._token_key,
            "kreplica.zookeeper.sasl.jaas.config": f'{DIGEST_LOGIN} required username="{BROKER}" '
            f'password="{self._coordinator_password}";',
            "zookeeper.set.acl": "true",
            "kreplica.admin.authentication": "basic",
            "kreplica.admin.token.file": f"{place}/admin-token",
            "kreplica.admin.tls.certificate.file": f"{place}/{BROKER}.pem",
            "kreplica.admin.tls.key.file": f"{place}/{BROKER}.pem",
        }

    async def create_admin(self, broker: Broker) -> None:
        """Create the user ``admin`` unless it exists."""
        await self.create_user(broker, ADMIN, self.admin_password)

    async def create_user(self, broker: Broker, user: str, password: str) -> None:
        """Create a SCRAM-SHA-512 user unless it exists."""
        from kreplica.membership.scram_writer import ScramWriter
        from kreplica.security.sasl.scram import SCRAM_SHA_512, ScramCredential

        settings = broker.dynamic_settings
        if settings.scram_credentials.find(SCRAM_SHA_512, user) is None:
            credential = await broker.runtime.offload.run(
                ScramCredential.of_password,
                SCRAM_SHA_512,
                password,
                secrets.token_bytes(SALT_BYTES),
                ITERATIONS,
            )
            await ScramWriter(settings, broker.client).change(user, {SCRAM_SHA_512: credential})

    def _client_properties(self) -> str:
        return (
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM_LOGIN} required username="{ADMIN}" password="{self.admin_password}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.directory}/ca.pem\n"
        )


def _secret(path: Path) -> str:
    """Return the secret in a file; if the file does not exist, create it with a new secret."""
    _write_if_absent(path, secrets.token_urlsafe(SECRET_BYTES) + "\n")
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {reason_of(error)}") from None
    if not text or not text.replace("-", "").replace("_", "").isalnum():
        raise SettingsError(f"{path} must contain one word of letters, digits, - and _")
    return text


def _write_if_absent(path: Path, text: str) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except FileExistsError:
        pass
    except OSError as error:
        raise SettingsError(f"{path} cannot be created: {error.strerror}") from None
