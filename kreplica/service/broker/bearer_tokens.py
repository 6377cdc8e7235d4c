"""Validators of bearer tokens for the listeners of a broker and its admin API, built from the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.service.plugins.sasl_mechanisms import enabled_mechanisms
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions.oauth import ALLOW_UNSECURED, OAUTH_VALIDATION
from kreplica.settings.names import mechanism_setting

if TYPE_CHECKING:
    from kreplica.security.oauth.key_source import KeySource
    from kreplica.security.oauth.token_requests import HttpResponse
    from kreplica.security.sasl.bearer_token import TokenValidator

log = Logger()

_OAUTHBEARER = "OAUTHBEARER"
_URL = "sasl.oauthbearer.jwks.endpoint.url"
_JAAS = "sasl.jaas.config"
_HTTP_TIMEOUT_S = 10.0
_OK = 200


class BearerTokens:
    """The validators of a broker; validators with the same settings share their keys.

    :raise SettingsError: the settings or the keys in a file are invalid.
    """

    def __init__(self, runtime: Runtime, settings: BrokerSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._sources: dict[object, KeySource] = {}
        self._signed: dict[object, TokenValidator] = {}
        self._unsecured: list[str] = []
        listeners = [listener for listener, mechanism in enabled_mechanisms(settings) if mechanism == _OAUTHBEARER]
        self._validators = {listener: self._of_listener(listener) for listener in listeners}
        self._for_admin = self._of_admin() if "bearer" in settings["kreplica.admin.authentication"] else None

    def start(self) -> None:
        """Start reading the keys, and log a warning for each listener that accepts unsigned tokens."""
        for listener in self._unsecured:
            log.warn(
                "the listener {listener} accepts tokens without a signature: any client can be any user ({setting})",
                listener=listener,
                setting=ALLOW_UNSECURED,
            )
        for source in self._sources.values():
            source.start()

    def stop(self) -> None:
        """Stop reading the keys."""
        for source in self._sources.values():
            source.stop()

    @property
    def sources(self) -> Collection[KeySource]:
        """The sources of the keys."""
        return self._sources.values()

    def of_listener(self, listener: str) -> TokenValidator:
        """Return the validator of a listener that enables OAUTHBEARER."""
        return self._validators[listener]

    @property
    def for_admin(self) -> TokenValidator | None:
        """The validator of the admin API; None if it does not accept tokens from an authorization server."""
        return self._for_admin

    # --- creation ----------------------------------------------------------------------------------------------------

    def _of_listener(self, listener: str) -> TokenValidator:
        values = self._settings.of_mechanism(listener, _OAUTHBEARER, OAUTH_VALIDATION)
        name = mechanism_setting(listener, _OAUTHBEARER, _JAAS)
        options = _jaas_options(self._settings.get(name), name)
        if values[_URL]:
            return self._signed_validator(values, options)
        if not self._settings[ALLOW_UNSECURED]:
            raise SettingsError(
                f"{_URL} is not set: the listener {listener} could not verify tokens. {ALLOW_UNSECURED}=true accepts "
                "tokens without a signature, which anyone can create for any user"
            )
        self._unsecured.append(listener)
        # Imported here because most brokers do not use it.
        from kreplica.security.oauth.unsecured import UnsecuredRules, UnsecuredValidator

        return UnsecuredValidator(UnsecuredRules.from_options(options, name), self._runtime.wall_clock_ms)

    def _of_admin(self) -> TokenValidator:
        """Return the validator that the listeners share, or else one built from the broker-wide settings."""
        if self._signed:
            if len(self._signed) > 1 or any(each not in self._signed.values() for each in self._validators.values()):
                raise SettingsError(
                    "kreplica.admin.authentication=bearer: the listeners have different settings sasl.oauthbearer.*, "
                    "so the rules of the admin API are ambiguous: use the same settings for all listeners"
                )
            return next(iter(self._signed.values()))
        if not self._settings[_URL]:
            raise SettingsError(f"kreplica.admin.authentication=bearer needs {_URL}")
        return self._signed_validator({name: self._settings[name] for name in OAUTH_VALIDATION}, {})

    def _signed_validator(self, values: Mapping[str, Any], options: Mapping[str, str]) -> TokenValidator:
        # Imported here because it imports PyJWT.
        from kreplica.security.oauth.jwt_validator import JwtRules, JwtValidator

        rules = JwtRules(
            audiences=tuple(values["sasl.oauthbearer.expected.audience"] or ()),
            issuer=values["sasl.oauthbearer.expected.issuer"] or None,
            scope_claim=values["sasl.oauthbearer.scope.claim.name"] or "scope",
            sub_claim=values["sasl.oauthbearer.sub.claim.name"] or "sub",
            clock_skew_ms=values["sasl.oauthbearer.clock.skew.seconds"] * 1000,
        )
        key, source = self._source(values, options)
        found = self._signed.get((rules, key))
        if found is None:
            found = self._signed[rules, key] = JwtValidator(rules, source, self._runtime.wall_clock_ms)
        return found

    def _source(self, values: Mapping[str, Any], options: Mapping[str, str]) -> tuple[object, KeySource]:
        from kreplica.client_core.backoff import backoff_s
        from kreplica.security.oauth.endpoint_urls import parse_endpoint_url
        from kreplica.security.oauth.key_source import KeySchedule, KeySource
        from kreplica.security.oauth.login_options import tls_of

        url, tls = parse_endpoint_url(values[_URL], _URL), tls_of(options)
        times_s = tuple(values[f"sasl.oauthbearer.jwks.endpoint.{name}.ms"] / 1000 for name in _TIMES)
        refresh_s, first_s, max_s = times_s
        key = url, tls, times_s
        source = self._sources.get(key)
        if source is None:
            runtime = self._runtime
            schedule = KeySchedule(
                refresh_s=refresh_s,
                backoff_s=lambda failures: max(backoff_s(runtime.random, failures, first_s, max_s), _BACKOFF_S_MIN),
            )
            if url.path is not None:
                read: Callable[[], Awaitable[bytes]] = partial(runtime.offload.run, runtime.disk.read_file, url.path)
                keys = _keys_of_file(runtime, url.path)
            else:
                read, keys = self._http_reader(url.url, tls if url.is_secure else None), None
            source = KeySource(url.place, read, runtime.reactor, runtime.offload, schedule, keys)
            self._sources[key] = source
        return key, source

    def _http_reader(self, url: str, options: Any) -> Callable[[], Awaitable[bytes]]:
        from kreplica.security.oauth.http_exchange import HttpFailed, exchange
        from kreplica.security.oauth.token_requests import HttpRequest

        tls = None
        if options is not None:
            from kreplica.security.tls.contexts import ClientTls

            tls = ClientTls(options)
        request = HttpRequest("GET", url, {"Accept": "application/json"})

        async def read() -> bytes:
            response: HttpResponse = await exchange(
                self._runtime.reactor, request, tls, _HTTP_TIMEOUT_S, 2 * _HTTP_TIMEOUT_S
            )
            if response.status != _OK:
                raise HttpFailed(f"{request.place}: status {response.status}")
            return response.body

        return read


_TIMES = ("refresh", "retry.backoff", "retry.backoff.max")
_BACKOFF_S_MIN = 0.05
"""A backoff of 0 would keep the event loop busy while the authorization server is down."""


def _jaas_options(jaas: str | None, name: str) -> Mapping[str, str]:
    from kreplica.security.sasl.jaas import parse_jaas

    try:
        return parse_jaas(jaas).options if jaas else {}
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None


def _keys_of_file(runtime: Runtime, path: str) -> Any:
    from kreplica.security.oauth.key_set import KeySet

    try:
        return KeySet.parse(runtime.disk.read_file(path))
    except OSError as error:
        raise SettingsError(f"{_URL}: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{_URL}: {path}: {error}") from None
