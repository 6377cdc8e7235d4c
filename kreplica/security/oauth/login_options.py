"""Settings of a client that authenticates with tokens (KIP-768)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kreplica.errors import SettingsError
from kreplica.security.oauth.endpoint_urls import EndpointUrl, parse_endpoint_url
from kreplica.security.oauth.refresh_times import RefreshRules
from kreplica.security.oauth.token_requests import ClientSecret
from kreplica.security.oauth.unsecured import EXTENSION, UnsecuredLogin
from kreplica.security.sasl.jaas import parse_jaas
from kreplica.security.sasl.oauthbearer import OAUTHBEARER, check_extensions
from kreplica.security.tls.options import CLIENT_SETTINGS, TlsOptions

URL = "sasl.oauthbearer.token.endpoint.url"
HANDLER = "sasl.login.callback.handler.class"
_URLENCODE = "sasl.oauthbearer.header.urlencode"
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_NUMBERS: Mapping[str, tuple[type[int] | type[float], float, float]] = {
    "sasl.login.connect.timeout.ms": (int, 1, _INT_MAX),
    "sasl.login.read.timeout.ms": (int, 1, _INT_MAX),
    "sasl.login.refresh.buffer.seconds": (int, 0, 3600),
    "sasl.login.refresh.min.period.seconds": (int, 0, 900),
    "sasl.login.refresh.window.factor": (float, 0.5, 1.0),
    "sasl.login.refresh.window.jitter": (float, 0.0, 0.25),
    "sasl.login.retry.backoff.max.ms": (int, 0, _LONG_MAX),
    "sasl.login.retry.backoff.ms": (int, 0, _LONG_MAX),
}
_CLASS = "OAuthBearerLoginCallbackHandler"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_CLASSES = (f"{_PACKAGE}.{_CLASS}", f"{_PACKAGE}.secured.{_CLASS}")
_UNUSED = ("sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name")
"""Settings without effect, since kreplica's clients do not read the user and the scope in their tokens."""

LOGIN_SETTINGS = (URL, HANDLER, *_NUMBERS, _URLENCODE, *_UNUSED)
"""Settings of clients, apart from the login module."""

TIMEOUT_MS = 10_000
"""Default timeout for connecting and for responses; Kafka has no limit by default."""

_EXTENSION = "extension_"
_LISTS = ("ssl.enabled.protocols", "ssl.cipher.suites")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginOptions:
    """How a client obtains its tokens: from a token endpoint, from a file, or by creating unsecured ones.

    :param url: the token endpoint or file; None for unsecured tokens.
    :param client: the client's credentials at the token endpoint; None for a file.
    :param tls: TLS options of the connection to the token endpoint, from ``ssl.*`` in the login module.
    :param extensions: SASL extensions by name.
    :param retry_s: delay after the first failed request; ``retry_s_max`` limits the total time of all attempts.
    """

    url: EndpointUrl | None
    client: ClientSecret | None
    unsecured: UnsecuredLogin | None
    tls: TlsOptions
    extensions: Mapping[str, str] = field(repr=False)
    refresh: RefreshRules
    retry_s: float
    retry_s_max: float
    connect_timeout_s: float
    read_timeout_s: float

    @property
    def user(self) -> str:
        """Name of the client in error messages."""
        if self.unsecured is not None:
            return self.unsecured.user
        return "the token's user" if self.client is None else self.client.client_id


def parse_login_settings(config: Mapping[str, str]) -> dict[str, Any]:
    """Return the typed values of the ``LOGIN_SETTINGS`` in the configuration of a client.

    :raise SettingsError: a value is malformed.
    """
    values: dict[str, Any] = {}
    for name, text in config.items():
        if name in _NUMBERS:
            values[name] = _number(name, text.strip())
        elif name == _URLENCODE:
            if text.strip().lower() not in ("true", "false"):
                raise SettingsError(f"{name}={text}: expected true or false")
            values[name] = text.strip().lower() == "true"
        elif name == HANDLER and text.strip() not in ("", *_CLASSES):
            raise SettingsError(f"{name}={text}: Java classes cannot be loaded, only {_CLASSES[0]} is supported")
        elif name == URL:
            values[name] = text
    return values


def _number(name: str, text: str) -> float:
    kind, low, high = _NUMBERS[name]
    try:
        value = kind(text) if text.isascii() and "_" not in text else None
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise SettingsError(f"{name}={text}: expected a number from {low:g} to {high:g}")
    return value


def login_options(values: Mapping[str, Any], jaas: str | None, setting: str) -> LoginOptions:
    """Return the token options of a client.

    :param values: typed values of ``LOGIN_SETTINGS``; Kafka's default is used for missing and None values.
    :param jaas: the JAAS configuration with the login module.
    :param setting: name of the setting with the login module, for error messages.
    :raise SettingsError: a setting or an option is missing or malformed.
    """
    if not jaas:
        raise SettingsError(f"{setting} is not set: {OAUTHBEARER} needs a login module")
    try:
        options = parse_jaas(jaas).options
    except ValueError as error:
        raise SettingsError(f"{setting}: {error}") from None
    text = values.get(URL)
    url = parse_endpoint_url(text, URL) if text else None
    unsecured = UnsecuredLogin.from_options(options, setting) if url is None else None
    if url is None and unsecured is None:
        raise SettingsError(f"{URL} is not set: {OAUTHBEARER} needs the token endpoint, or a file with a token")
    chosen = {name: value for name, value in values.items() if value is not None}
    return LoginOptions(
        url=url,
        client=_client(options, setting, chosen) if url is not None and url.path is None else None,
        unsecured=unsecured,
        tls=tls_of(options),
        extensions=_extensions(options, setting, EXTENSION if url is None else _EXTENSION),
        refresh=RefreshRules(
            window_factor=chosen.get("sasl.login.refresh.window.factor", 0.8),
            window_jitter=chosen.get("sasl.login.refresh.window.jitter", 0.05),
            min_period_s=chosen.get("sasl.login.refresh.min.period.seconds", 60),
            buffer_s=chosen.get("sasl.login.refresh.buffer.seconds", 300),
        ),
        retry_s=chosen.get("sasl.login.retry.backoff.ms", 100) / 1000,
        retry_s_max=chosen.get("sasl.login.retry.backoff.max.ms", 10_000) / 1000,
        connect_timeout_s=chosen.get("sasl.login.connect.timeout.ms", TIMEOUT_MS) / 1000,
        read_timeout_s=chosen.get("sasl.login.read.timeout.ms", TIMEOUT_MS) / 1000,
    )


def tls_of(options: Mapping[str, str]) -> TlsOptions:
    """Return the ``ssl.*`` options of a login module, for connections to the authorization server."""
    values: dict[str, object] = {name: value for name, value in options.items() if name in CLIENT_SETTINGS}
    for name in _LISTS:
        if name in options:
            values[name] = tuple(part.strip() for part in options[name].split(",") if part.strip())
    return TlsOptions.from_values(values)


def _client(options: Mapping[str, str], setting: str, values: Mapping[str, Any]) -> ClientSecret:
    missing = [name for name in ("clientId", "clientSecret") if not options.get(name, "").strip()]
    if missing:
        raise SettingsError(f"{setting}: the login module has no {' and no '.join(missing)}")
    return ClientSecret(
        options["clientId"].strip(),
        options["clientSecret"].strip(),
        options.get("scope", "").strip() or None,
        urlencode=values.get(_URLENCODE, False),
    )


def _extensions(options: Mapping[str, str], setting: str, prefix: str) -> dict[str, str]:
    found = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    try:
        check_extensions(found)
    except ValueError as error:
        raise SettingsError(f"{setting}: {error}") from None
    return found
