"""Security of a broker's listeners, and of its connections to other brokers, from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions.security import PER_LISTENER
from kreplica.settings.names import LISTENER_PREFIX

if TYPE_CHECKING:
    from kreplica.security.tls.listener import ListenerTls
    from kreplica.security.tls.options import TlsOptions


def listener_tls(runtime: Runtime, settings: BrokerSettings, endpoint: Endpoint) -> ListenerTls | None:
    """Return the TLS of a listener; None if its connections are not encrypted.

    :raise SettingsError: the settings or files are invalid.
    """
    if endpoint.security_protocol != "SSL":
        return None
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.listener import ListenerTls

    return ListenerTls(_options(settings, endpoint.listener), runtime.reactor.seconds, runtime.offload.run)


def inter_broker_endpoint(settings: BrokerSettings) -> EndpointMaker:
    """Return the maker of endpoints for connections to other brokers.

    :raise SettingsError: the settings or files are invalid.
    """
    name = settings.inter_broker_listener
    protocols = {endpoint.listener: endpoint.security_protocol for endpoint in settings.listeners}
    if protocols[name] != "SSL":
        return tcp_endpoint
    from kreplica.client.security import tls_endpoint_maker
    from kreplica.security.tls.contexts import ClientTls

    return tls_endpoint_maker(ClientTls(_options(settings, name)))


def _options(settings: BrokerSettings, listener: str) -> TlsOptions:
    from kreplica.security.tls.options import TlsOptions

    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    is_overridden = any(name.startswith(f"{prefix}ssl.") for name in settings.configured_names)
    return TlsOptions.from_values(settings.of_listener(listener, PER_LISTENER), prefix if is_overridden else "")
