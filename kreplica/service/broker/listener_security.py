"""Builds the security of a broker's listeners, and of its connections to other brokers, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.errors import SettingsError
from kreplica.membership.scram_credentials import ScramCredentials
from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.service.broker.bearer_tokens import BearerTokens
from kreplica.service.broker.listener_certificates import ListenerCertificates
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions.oauth import OAUTH_LOGIN
from kreplica.settings.definitions.security import PER_LISTENER
from kreplica.settings.names import mechanism_setting

if TYPE_CHECKING:
    from kreplica.membership.delegation_tokens.token_store import TokenStore
    from kreplica.security.oauth.login_options import LoginOptions
    from kreplica.security.sasl.credentials import PasswordCredentials
    from kreplica.server.authentication.sasl_config import BrokerExchange, SaslConfig
    from kreplica.service.plugins.sasl_mechanisms import ChosenMechanism

_JAAS = "sasl.jaas.config"
_USER_PREFIX = "user_"
_WITH_TLS = ("SSL", "SASL_SSL")
_WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class Authenticators(NamedTuple):
    """Sources of the credentials and tokens that authenticate clients.

    :param credentials: the SCRAM credentials of all users.
    :param bearer_tokens: validators of bearer tokens.
    :param delegation_tokens: the delegation tokens; None if they are disabled.
    :param plugins: SASL mechanisms provided by plugins, by name.
    """

    credentials: ScramCredentials
    bearer_tokens: BearerTokens
    delegation_tokens: TokenStore | None
    plugins: Mapping[str, ChosenMechanism]


def shared_port(settings: BrokerSettings, endpoint: Endpoint) -> int:
    """Return the port that a listener shares with the other brokers on the machine; 0 for none."""
    port: int = settings["kreplica.bootstrap.port"]
    return port if endpoint == settings.listeners[0] else 0


def listener_sasl(
    runtime: Runtime, settings: BrokerSettings, endpoint: Endpoint, authenticators: Authenticators
) -> SaslConfig | None:
    """Return the SASL configuration of a listener; None if its clients do not authenticate with SASL.

    :raise SettingsError: the settings are invalid.
    """
    if endpoint.security_protocol not in _WITH_SASL:
        return None
    # Imported here because most brokers have no listener with SASL.
    from kreplica.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
    from kreplica.security.sasl.plain import PLAIN
    from kreplica.security.sasl.scram import ScramServer, random_nonce
    from kreplica.server.authentication.sasl_config import SaslConfig

    listener = endpoint.listener
    values = settings.of_listener(listener, PER_LISTENER)
    mechanisms: dict[str, Callable[[], BrokerExchange]] = {}
    for configured_name in values["sasl.enabled.mechanisms"]:
        name = configured_name.upper()
        if name in authenticators.plugins:
            mechanisms[name] = partial(authenticators.plugins[name].new_exchange, listener)
        elif name == PLAIN:
            mechanisms[name] = _plain_exchanges(settings, listener)
        elif name == OAUTHBEARER:
            mechanisms[name] = partial(OAuthBearerServer, authenticators.bearer_tokens.of_listener(listener))
        else:
            nonce = partial(random_nonce, runtime.secret_random)
            tokens = authenticators.delegation_tokens
            find_user = partial(authenticators.credentials.find, name)
            find_token = _no_token if tokens is None else partial(tokens.credential, name)
            mechanisms[name] = partial(ScramServer, name, find_user, nonce, find_token)
    return SaslConfig(
        mechanisms,
        runtime.wall_clock_ms,
        receive_bytes_max=values["sasl.server.max.receive.size"],
        failure_delay_s=settings["connection.failed.authentication.delay.ms"] / 1000,
        lifetime_s=values["connections.max.reauth.ms"] / 1000,
    )


def _no_token(_: str) -> None:
    return None


class BrokerEndpoints(NamedTuple):
    """Makers of endpoints for connections to other brokers.

    :param control_plane: for the controller's requests; by default, the same as ``inter_broker``.
    """

    inter_broker: EndpointMaker
    control_plane: EndpointMaker


def broker_endpoints(
    runtime: Runtime, settings: BrokerSettings, certificates: ListenerCertificates
) -> BrokerEndpoints:
    """Return the makers of endpoints for connections to other brokers.

    :param certificates: used to verify other brokers; contain this broker's own certificate.
    :raise SettingsError: the settings or files are invalid.
    """
    inter_broker = control_plane = _endpoint(runtime, settings, certificates, settings.inter_broker_listener)
    if settings.control_plane_listener != settings.inter_broker_listener:
        control_plane = _endpoint(runtime, settings, certificates, settings.control_plane_listener)
    return BrokerEndpoints(inter_broker, control_plane)


def _endpoint(
    runtime: Runtime, settings: BrokerSettings, certificates: ListenerCertificates, listener: str
) -> EndpointMaker:
    """Return the maker of endpoints for connections to a listener of other brokers."""
    protocol = next(each.security_protocol for each in settings.listeners if each.listener == listener)
    if protocol == "PLAINTEXT":
        return tcp_endpoint
    from kreplica.client.security import secured_endpoint_maker
    from kreplica.security.sasl.mechanisms import check_mechanism

    sasl = None
    if protocol in _WITH_SASL:
        setting = "sasl.mechanism.inter.broker.protocol"
        mechanism = check_mechanism(settings[setting], setting)
        sasl = _own_credentials(runtime, settings, listener, mechanism)
    if protocol not in _WITH_TLS:
        return secured_endpoint_maker(None, sasl)
    return secured_endpoint_maker(certificates.client(listener), sasl)


def _own_credentials(
    runtime: Runtime, settings: BrokerSettings, listener: str, mechanism: str
) -> PasswordCredentials | LoginOptions:
    """Return the broker's own credentials for connections to other brokers."""
    from kreplica.security.oauth.login_options import login_options
    from kreplica.security.sasl.credentials import credentials_of
    from kreplica.security.sasl.oauthbearer import OAUTHBEARER

    name = mechanism_setting(listener, mechanism, _JAAS)
    jaas = settings.get(name)
    if mechanism == OAUTHBEARER:
        return login_options(settings.of_mechanism(listener, mechanism, OAUTH_LOGIN), jaas, name)
    return replace(credentials_of(mechanism, jaas, name), random=runtime.secret_random)


def _plain_exchanges(settings: BrokerSettings, listener: str) -> Callable[[], BrokerExchange]:
    from kreplica.security.sasl.jaas import parse_jaas
    from kreplica.security.sasl.plain import PLAIN, PlainServer

    name = mechanism_setting(listener, PLAIN, _JAAS)
    jaas = settings.get(name)
    try:
        options = parse_jaas(jaas).options if jaas else {}
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None
    names = [key for key, value in options.items() if key.startswith(_USER_PREFIX) and value]
    users = {key.removeprefix(_USER_PREFIX): options[key] for key in names}
    if not users:
        raise SettingsError(f"{name}: PLAIN needs a login module with an option {_USER_PREFIX}NAME for each user")
    return partial(PlainServer, users)
