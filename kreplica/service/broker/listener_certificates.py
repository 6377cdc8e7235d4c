"""Certificates of a broker's listeners, from its settings file and from dynamic settings (KIP-226)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, SettingsError
from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.service.broker.certificate_watch import CertificateWatch
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions.security import TLS_SETTINGS
from kreplica.settings.dynamic import EffectiveSettings
from kreplica.settings.names import LISTENER_PREFIX

if TYPE_CHECKING:
    from kreplica.security.tls.contexts import ClientTls
    from kreplica.security.tls.listener import ListenerTls
    from kreplica.security.tls.options import TlsOptions

log = Logger()

_WITH_TLS = ("SSL", "SASL_SSL")


class ListenerCertificates:
    """TLS of a broker's listeners, and of its connections to other brokers.

    :ivar watch: watches the expiry of certificates.
    :ivar listeners: open listeners with TLS, by name.
    """

    def __init__(self, runtime: Runtime, settings: BrokerSettings) -> None:
        self._runtime = runtime
        self._static = EffectiveSettings(settings)
        self.watch = CertificateWatch(runtime, settings["kreplica.tls.expiry.warning.days"])
        self._clients: dict[str, ClientTls] = {}
        self.listeners: dict[str, ListenerTls] = {}

    def client(self, listener: str) -> ClientTls:
        """Return the TLS of connections to other brokers, with the certificate of this broker's listener of that name.

        :raise SettingsError: the settings or files of the broker's file are invalid.
        """
        # Imported here because it imports OpenSSL.
        from kreplica.security.tls.contexts import ClientTls

        if listener not in self._clients:
            self._clients[listener] = ClientTls(_tls_options(self._static, listener))
        return self._clients[listener]

    def open(self, endpoint: Endpoint, settings: EffectiveSettings) -> ListenerTls | None:
        """Return the TLS of a listener that is being opened; None if its connections are not encrypted.

        If the dynamic settings are invalid, those of the broker's file apply, and the error is logged.

        :raise SettingsError: the settings or files of the broker's file are invalid.
        """
        if endpoint.security_protocol not in _WITH_TLS:
            return None
        # Imported here because it imports OpenSSL.
        from kreplica.security.tls.listener import ListenerTls

        name, runtime = endpoint.listener, self._runtime
        client = self._clients.get(name)
        options, static = _tls_options(settings, name), _tls_options(self._static, name)

        def listener(chosen: TlsOptions) -> ListenerTls:
            return ListenerTls(chosen, runtime.reactor.seconds, runtime.offload.run, client)

        try:
            tls = listener(options)
        except SettingsError as error:
            if options == static:
                raise
            log.error("ignoring the dynamic settings of listener {name}: {reason}", name=name, reason=str(error))
            tls = listener(static)
        self.listeners[name] = tls
        self.watch.add(name, tls)
        return tls

    def apply(self, settings: EffectiveSettings) -> None:
        """Apply changed settings to the certificates of open listeners."""
        for name, listener in self.listeners.items():
            listener.change(_tls_options(settings, name))

    async def check(self, settings: EffectiveSettings, changed: Collection[str]) -> None:
        """Check that changed settings can be applied to the certificates of open listeners.

        :param changed: names of the changed settings.
        :raise KafkaError: INVALID_REQUEST; the message names the setting and the reason.
        """
        for name, listener in self.listeners.items():
            if any(each.startswith(_prefix(name)) for each in changed):
                try:
                    await self._runtime.offload.run(listener.check, _tls_options(settings, name))
                except SettingsError as error:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _prefix(listener: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}."


def _tls_options(settings: EffectiveSettings, listener: str) -> TlsOptions:
    from kreplica.security.tls.options import TlsOptions

    prefix = _prefix(listener)
    is_overridden = any(name.startswith(f"{prefix}ssl.") for name in settings.names)
    return TlsOptions.from_values(settings.of_listener(listener, TLS_SETTINGS), prefix if is_overridden else "")
