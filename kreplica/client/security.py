"""Secured client connections, configured with the setting names of Kafka's Java clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from kreplica.client.client_runtime import EndpointMaker, hostname_endpoint
from kreplica.runtime import Reactor
from kreplica.security.client_config import parse_client_config
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.sasl.credentials import SaslCredentials

if TYPE_CHECKING:
    from kreplica.security.tls.contexts import ClientTls, HostVerification


@implementer(IStreamClientEndpoint)
class SecuredEndpoint:
    """Endpoint whose connections use TLS, SASL authentication, or both.

    :ivar sasl: credentials of the client; None if it does not authenticate.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, verification: HostVerification | None, sasl: SaslCredentials | None
    ) -> None:
        self._verification = verification
        self._endpoint = endpoint if verification is None else wrapClientTLS(verification, endpoint)
        self.sasl = sasl

    @property
    def certificate_error(self) -> str | None:
        """Reason why the server's certificate was rejected; None if it was not."""
        return None if self._verification is None else self._verification.certificate_error

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Connect; the TLS handshake and the authentication follow."""
        return self._endpoint.connect(factory)


def secured_endpoint_maker(
    tls: ClientTls | None, sasl: SaslCredentials | LoginOptions | None = None, plain: EndpointMaker = hostname_endpoint
) -> EndpointMaker:
    """Return a factory of secured endpoints.

    :param tls: None if the connections are not encrypted.
    :param sasl: None if the client does not authenticate.
    :param plain: creates the endpoints of the TCP connections.
    """
    credentials_for = _credentials(sasl)

    def make(reactor: Reactor, host: str, port: int, timeout_s: float) -> SecuredEndpoint:
        verification = None if tls is None else tls.creator(host)
        return SecuredEndpoint(plain(reactor, host, port, timeout_s), verification, credentials_for(reactor))

    return make


def _credentials(sasl: SaslCredentials | LoginOptions | None) -> Callable[[Reactor], SaslCredentials | None]:
    """Return a function that returns the credentials for a reactor; all of its connections share a token."""
    if not isinstance(sasl, LoginOptions):
        return lambda _: sasl
    # Imported here because only OAUTHBEARER needs it.
    from kreplica.client.token_login import token_endpoint_tls, token_login

    options, tls = sasl, token_endpoint_tls(sasl)
    logins: dict[Reactor, SaslCredentials] = {}

    def credentials(reactor: Reactor) -> SaslCredentials:
        if reactor not in logins:
            logins[reactor] = token_login(reactor, options, tls)
        return logins[reactor]

    return credentials


def secured_endpoints(config: Mapping[str, str]) -> EndpointMaker:
    """Return a factory of endpoints that are secured according to a Java client's configuration.

    :param config: settings that ``kreplica.security.client_config.parse_client_config`` accepts, such as
        ``security.protocol``, ``ssl.truststore.location`` and ``sasl.jaas.config``.
    :raise SettingsError: a setting is unknown or invalid, or a file cannot be read.
    """
    security = parse_client_config(config)
    if security.tls is None:
        return hostname_endpoint if security.sasl is None else secured_endpoint_maker(None, security.sasl)
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.contexts import ClientTls

    return secured_endpoint_maker(ClientTls(security.tls), security.sasl)
