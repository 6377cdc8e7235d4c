"""TLS of one listener: its current certificate, and the user names from its clients' certificates."""

from __future__ import annotations

from collections.abc import Callable

from OpenSSL import crypto

from kreplica.errors import SettingsError
from kreplica.security.tls.changes import check_change
from kreplica.security.tls.contexts import ClientTls, ServerTls, load_server_tls
from kreplica.security.tls.distinguished_names import rfc2253
from kreplica.security.tls.options import TlsOptions
from kreplica.security.tls.principal_rules import parse_rules, user_of
from kreplica.security.tls.reloading import Build, Offload, ReloadedTls


class ListenerTls(ReloadedTls):
    """Creates the TLS connections of a listener, with its current key store and trust store.

    :param seconds: monotonic clock.
    :param client: TLS of the connections that this server opens to the same listener of its peers; it changes with the
        listener's certificates.
    :raise SettingsError: the settings or files are invalid; the message names the setting and the file.
    """

    def __init__(
        self, options: TlsOptions, seconds: Callable[[], float], offload: Offload, client: ClientTls | None = None
    ) -> None:
        try:
            self._rules = parse_rules(options.principal_mapping_rules)
        except ValueError as error:
            raise SettingsError(f"{options.name('principal_mapping_rules')}: {error}") from None
        self._options = options
        self._client = client
        super().__init__(options.files, self._builder(options), seconds, offload)
        self.use(self._current)

    def _builder(self, options: TlsOptions) -> Build:
        has_client = self._client is not None

        def build() -> ServerTls:
            loaded = load_server_tls(options)
            return loaded._replace(client=ClientTls(options)) if has_client else loaded

        return build

    def use(self, current: ServerTls) -> None:
        super().use(current)
        if self._client is not None and current.client is not None:
            self._client.replace(current.client)

    def check(self, options: TlsOptions) -> None:
        """Check that the listener can change to these key stores and trust stores; blocks while it reads them.

        :raise SettingsError: a file or password is invalid, or the change is not allowed; the message names the
            setting.
        """
        check_change(self._options, self._current, options, self._builder(options)())

    def change(self, options: TlsOptions) -> None:
        """Change to other key stores and trust stores, or reload the same ones if their files have changed."""
        if options == self._options:
            self._reload_if_changed()
        else:
            self._options = options
            self.replace(options.files, self._builder(options))

    def user_of(self, certificate: crypto.X509 | None) -> str | None:
        """Return the user name for a client's certificate, ``ANONYMOUS`` without a certificate.

        :return: None if no rule of ``ssl.principal.mapping.rules`` matches the certificate.
        """
        if certificate is None:
            return "ANONYMOUS"
        return user_of(self._rules, rfc2253(certificate.to_cryptography().subject))
