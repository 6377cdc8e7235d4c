"""Real broker processes with a SASL_SSL listener, whose settings a test changes between restarts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.wire import messages
from tests.support.blocking_client import BlockingClient
from tests.support.broker_process import BrokerProcess
from tests.support.process_cluster import ProcessCluster, direct_places
from tests.support.server_process import free_ports

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORDS = {"broker": "planted-secret-1", "admin": "planted-secret-2"}
"""Passwords of the users of PLAIN."""

DAYS = 10


class SecuredClient(BlockingClient):
    """A client that authenticates with PLAIN over TLS.

    :raise OSError: the broker cannot be reached, or rejects the client.
    """

    def __init__(self, host: str, port: int, authority: Path, user: str) -> None:
        super().__init__(host, port)
        try:
            context = ssl.create_default_context(cafile=str(authority))
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self.request(messages.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, version=1)
            token = f"\0{user}\0{PASSWORDS[user]}".encode()
            response = self.request(messages.SASL_AUTHENTICATE, {"auth_bytes": token}, version=1)
            if response["error_code"]:
                raise ConnectionError(response["error_message"])
        except BaseException:
            self.close()
            raise


class SecuredProcesses:
    """Three brokers with an unencrypted listener, and ports for a SASL_SSL listener.

    :ivar cluster: the brokers, which have only the unencrypted listener until a test changes their settings.
    :ivar authority: path of the CA certificate.
    :ivar ports: ports for SASL_SSL, by broker ID.
    :param settings: settings of all brokers, in addition to those of ``ProcessCluster``.
    """

    def __init__(self, directory: Path, zookeeper: str, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self._authority = open_authority(directory, DAYS)
        self.authority = directory / "ca.pem"
        self.cluster = ProcessCluster(directory, direct_places(zookeeper), settings=settings)
        self.ports = dict(zip(self.cluster.brokers, free_ports(3), strict=True))
        self._certificates = 0

    @property
    def servers(self) -> str:
        """Bootstrap servers for SASL_SSL."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def new_certificate(self) -> Path:
        """Create a certificate and key that any broker can use."""
        self._certificates += 1
        directory = self.directory / f"certificate-{self._certificates}"
        directory.mkdir()
        return create_certificate(directory, self._authority, "broker", ["127.0.0.1"], DAYS)

    def listeners(self, broker: BrokerProcess, *, is_open: bool) -> dict[str, object]:
        """Return the settings of a broker's listeners.

        :param is_open: True to keep the unencrypted listener.
        """
        listeners = [f"SASL_SSL://127.0.0.1:{self.ports[broker.broker_id]}"]
        if is_open:
            listeners.insert(0, f"PLAINTEXT://127.0.0.1:{broker.place.port}")
        return {"listeners": ",".join(listeners), "advertised.listeners": ",".join(listeners)}

    def tls_and_sasl(self, key_store: Path) -> dict[str, object]:
        """Return the settings of the SASL_SSL listener."""
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        own = f'username="broker" password="{PASSWORDS["broker"]}"'
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": key_store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN_LOGIN} required {own} {users};",
        }

    def connect(self, broker: BrokerProcess) -> SecuredClient:
        """Connect as the administrator; used as ``cluster.connect`` once all brokers have the SASL_SSL listener."""
        return SecuredClient("127.0.0.1", self.ports[broker.broker_id], self.authority, "admin")

    def client_settings(self, user: str = "admin", password: str | None = None) -> Mapping[str, Any]:
        """Return the settings for librdkafka.

        :param password: the password of a SCRAM user; None for a PLAIN user.
        """
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "PLAIN" if password is None else "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
        }
