"""Secured connections of clients, configured with the names of Kafka's Java clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from kreplica.client.client_runtime import EndpointMaker, named_endpoint
from kreplica.runtime import Reactor
from kreplica.security.client_config import tls_options

if TYPE_CHECKING:
    from kreplica.security.tls.contexts import ClientTls, HostVerification


@implementer(IStreamClientEndpoint)
class TlsEndpoint:
    """Endpoint whose server must prove its identity with a certificate."""

    def __init__(self, verification: HostVerification, endpoint: IStreamClientEndpoint) -> None:
        self._verification = verification
        self._endpoint = wrapClientTLS(verification, endpoint)

    @property
    def certificate_error(self) -> str | None:
        """Reason why the server's certificate was rejected; None if it was not."""
        return self._verification.certificate_error

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Connect; the TLS handshake follows."""
        return self._endpoint.connect(factory)


def tls_endpoint_maker(tls: ClientTls, plain: EndpointMaker = named_endpoint) -> EndpointMaker:
    """Return a maker of TLS endpoints.

    :param plain: makes the endpoints of the TCP connections.
    """

    def make(reactor: Reactor, host: str, port: int, timeout_s: float) -> TlsEndpoint:
        return TlsEndpoint(tls.creator(host), plain(reactor, host, port, timeout_s))

    return make


def secured_endpoints(config: Mapping[str, str]) -> EndpointMaker:
    """Return a maker of endpoints with the security of a Java client's configuration.

    :param config: ``security.protocol`` (PLAINTEXT or SSL) and ``ssl.*``, such as ``ssl.truststore.location``.
    :raise SettingsError: a setting is unknown or invalid, or a file cannot be read.
    """
    options = tls_options(config)
    if options is None:
        return named_endpoint
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.contexts import ClientTls

    return tls_endpoint_maker(ClientTls(options))
