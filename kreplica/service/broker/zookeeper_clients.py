"""Creates a broker's ZooKeeper clients, with the encryption, authentication and ACLs that its settings specify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kreplica.errors import SettingsError
from kreplica.membership.znode_protection.acls import protected_acl
from kreplica.runtime import Runtime
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.zookeeper import SaslCredentials, ZooKeeperClient

if TYPE_CHECKING:
    from kreplica.zookeeper.ensemble import TlsContextFactory

JAAS_SETTING = "kreplica.zookeeper.sasl.jaas.config"
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_PREFIX = "zookeeper."


class ZooKeeperClients:
    """Creates the ZooKeeper clients of a broker.

    :raise SettingsError: a setting, key store or trust store is invalid.
    """

    def __init__(self, runtime: Runtime, settings: BrokerSettings) -> None:
        self._reactor = runtime.reactor
        self._connect: str = settings["zookeeper.connect"]
        session_timeout_ms: int = settings["zookeeper.session.timeout.ms"]
        connection_timeout_ms: int | None = settings["zookeeper.connection.timeout.ms"]
        self.connection_timeout_ms = session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms
        self._options: dict[str, Any] = {
            "random": runtime.random,
            "session_timeout_ms": session_timeout_ms,
            "connection_timeout_ms": self.connection_timeout_ms,
            "sasl": sasl_credentials(settings[JAAS_SETTING]),
            "tls_context_factory": tls_contexts(settings),
        }
        self._own_options: dict[str, Any] = {
            "acl_of": protected_acl if settings["zookeeper.set.acl"] else None,
        }

    def new(self) -> ZooKeeperClient:
        """Create the broker's client."""
        return ZooKeeperClient(self._reactor, self._connect, **self._options, **self._own_options)

    def resume(self, session: tuple[int, bytes]) -> ZooKeeperClient:
        """Create a client that resumes the session of an earlier process, with the same timeout as a new session.

        If the connection is lost before the session is closed, the broker's registration waits for that timeout.

        :param session: ID and password.
        """
        return ZooKeeperClient(self._reactor, self._connect, **self._options, resume=session)


def sasl_credentials(jaas: str | None) -> SaslCredentials | None:
    """Return the credentials in a JAAS configuration; None without one.

    :raise SettingsError: the text is malformed, names another login module, or lacks the user or the password.
    """
    if not jaas:
        return None
    # Imported here because most brokers do not authenticate to ZooKeeper.
    from kreplica.security.sasl.jaas import parse_jaas

    try:
        entry = parse_jaas(jaas)
    except ValueError as error:
        raise SettingsError(f"{JAAS_SETTING}: {error}") from None
    if entry.module != LOGIN_MODULE:
        raise SettingsError(f"{JAAS_SETTING}: the login module {entry.module} is not supported, only {LOGIN_MODULE}")
    missing = [name for name in ("username", "password") if not entry.options.get(name)]
    if missing:
        raise SettingsError(f"{JAAS_SETTING}: the login module has no {' and no '.join(missing)}")
    return SaslCredentials(entry.options["username"], entry.options["password"])


def tls_contexts(settings: BrokerSettings) -> TlsContextFactory | None:
    """Return the factory of TLS connections to ZooKeeper servers; None if connections are not encrypted.

    :raise SettingsError: a setting or file is invalid.
    """
    if not settings["zookeeper.ssl.client.enable"]:
        return None
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.contexts import ClientTls
    from kreplica.security.tls.options import CLIENT_SETTINGS
    from kreplica.security.tls.zookeeper_options import zookeeper_tls_options

    names = {name: _PREFIX + name for name in CLIENT_SETTINGS}
    values = {name: settings.get(full) for name, full in names.items() if settings.get(full) is not None}
    if not values.get("ssl.enabled.protocols"):
        values["ssl.enabled.protocols"] = (settings["zookeeper.ssl.protocol"],)
    return ClientTls(zookeeper_tls_options(values, _PREFIX)).creator
