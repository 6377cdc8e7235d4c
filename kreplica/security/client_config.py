"""Security of a client's connections, with settings named as in Kafka's Java clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kreplica.errors import SettingsError
from kreplica.security.oauth.login_options import LOGIN_SETTINGS, LoginOptions, login_options, parse_login_settings
from kreplica.security.sasl.credentials import PasswordCredentials, credentials_of
from kreplica.security.sasl.mechanisms import check_mechanism
from kreplica.security.sasl.oauthbearer import OAUTHBEARER
from kreplica.security.tls.options import CLIENT_SETTINGS, TlsOptions

SECURITY_PROTOCOL, SASL_MECHANISM, SASL_JAAS_CONFIG = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
_NAMES = (SECURITY_PROTOCOL, SASL_MECHANISM, SASL_JAAS_CONFIG, *CLIENT_SETTINGS, *LOGIN_SETTINGS)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTS = ("ssl.enabled.protocols", "ssl.cipher.suites")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """TLS and SASL options of a client's connections.

    :param tls: None if the connections are not encrypted.
    :param sasl: a password, or the options of a token login; None if the client does not authenticate.
    """

    tls: TlsOptions | None = None
    sasl: PasswordCredentials | LoginOptions | None = None


def parse_client_config(config: Mapping[str, str]) -> ClientSecurity:
    """Parse the settings of a client.

    :param config: ``security.protocol``: PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL; ``ssl.*`` such as
        ``ssl.truststore.location``; ``sasl.mechanism`` and ``sasl.jaas.config``; for OAUTHBEARER also
        ``sasl.oauthbearer.token.endpoint.url`` and ``sasl.login.*``.
    :raise SettingsError: a setting is unknown or has an unsupported value.
    """
    for name in config:
        if name not in _NAMES:
            near = get_close_matches(name, _NAMES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{name} is not a supported connection setting.{hint}")
    protocol = config.get(SECURITY_PROTOCOL, "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SettingsError(f"{SECURITY_PROTOCOL}={protocol}: the protocols are {', '.join(_PROTOCOLS)}")
    tls = _tls_options(config) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ClientSecurity(tls)
    if SASL_MECHANISM not in config:
        raise SettingsError(f"{SASL_MECHANISM} is not set: {protocol} needs it")
    mechanism = check_mechanism(config[SASL_MECHANISM], SASL_MECHANISM)
    jaas = config.get(SASL_JAAS_CONFIG)
    if mechanism == OAUTHBEARER:
        return ClientSecurity(tls, login_options(parse_login_settings(config), jaas, SASL_JAAS_CONFIG))
    return ClientSecurity(tls, credentials_of(mechanism, jaas, SASL_JAAS_CONFIG))


def _tls_options(config: Mapping[str, str]) -> TlsOptions:
    values: dict[str, object] = dict(config)
    for name in _LISTS:
        if name in config:
            values[name] = tuple(part.strip() for part in config[name].split(",") if part.strip())
    return TlsOptions.from_values(values)
