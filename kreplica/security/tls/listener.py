"""TLS of one listener: its current certificate, and the users of its clients' certificates."""

from __future__ import annotations

from collections.abc import Callable

from OpenSSL import crypto

from kreplica.errors import SettingsError
from kreplica.security.tls.contexts import server_context
from kreplica.security.tls.distinguished_names import rfc2253
from kreplica.security.tls.options import TlsOptions
from kreplica.security.tls.principal_rules import parse_rules, user_of
from kreplica.security.tls.reloading import Offload, ReloadedTls


class ListenerTls(ReloadedTls):
    """Creates the TLS connections of a listener, with its current key store and trust store.

    :param seconds: monotonic clock.
    :raise SettingsError: the settings or files are invalid; the message names the setting and the file.
    """

    def __init__(self, options: TlsOptions, seconds: Callable[[], float], offload: Offload) -> None:
        try:
            self._rules = parse_rules(options.principal_mapping_rules)
        except ValueError as error:
            raise SettingsError(f"{options.name('principal_mapping_rules')}: {error}") from None
        files = [path for path in (options.keystore_location, options.truststore_location) if path is not None]
        super().__init__(files, lambda: server_context(options), seconds, offload)

    def user_of(self, certificate: crypto.X509 | None) -> str | None:
        """Return the name of the user of a client's certificate, ``ANONYMOUS`` without a certificate.

        :return: None if no rule of ``ssl.principal.mapping.rules`` matches the certificate.
        """
        if certificate is None:
            return "ANONYMOUS"
        return user_of(self._rules, rfc2253(certificate.to_cryptography().subject))
