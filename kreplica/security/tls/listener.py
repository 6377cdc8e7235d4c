"""TLS of one listener: its current certificate, and the users of its clients' certificates."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from OpenSSL import SSL, crypto
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import SettingsError
from kreplica.security.tls.contexts import server_context
from kreplica.security.tls.distinguished_names import rfc2253
from kreplica.security.tls.options import TlsOptions
from kreplica.security.tls.principal_rules import parse_rules, user_of

log = Logger()

CHECK_INTERVAL_S = 10.0
"""Minimum time between two checks for changed files."""

Offload = Callable[[Callable[[], SSL.Context]], Deferred[SSL.Context]]
"""Runs a function in a thread."""

_State = tuple[tuple[int, int, int] | None, ...]


@implementer(IOpenSSLServerConnectionCreator)
class ListenerTls:
    """Creates the TLS connections of a listener.

    Changed files of the key store or trust store are read again when a client connects; that connection and open
    ones keep the previous certificate. Invalid files are logged, and the previous certificate stays in use.

    :param seconds: monotonic clock.
    :raise SettingsError: the settings or files are invalid; the message names the setting and the file.
    """

    def __init__(self, options: TlsOptions, seconds: Callable[[], float], offload: Offload) -> None:
        self._options = options
        self._seconds = seconds
        self._offload = offload
        try:
            self._rules = parse_rules(options.principal_mapping_rules)
        except ValueError as error:
            raise SettingsError(f"{options.name('principal_mapping_rules')}: {error}") from None
        self._files = [path for path in (options.keystore_location, options.truststore_location) if path is not None]
        self._state = self._read_state()
        self._context = server_context(options)
        self._check_at_s = seconds() + CHECK_INTERVAL_S

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        now_s = self._seconds()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            self._reload_if_changed()
        return SSL.Connection(self._context, None)

    def user_of(self, certificate: crypto.X509 | None) -> str | None:
        """Return the name of the user of a client's certificate, ``ANONYMOUS`` without a certificate.

        :return: None if no rule of ``ssl.principal.mapping.rules`` matches the certificate.
        """
        if certificate is None:
            return "ANONYMOUS"
        return user_of(self._rules, rfc2253(certificate.to_cryptography().subject))

    def _read_state(self) -> _State:
        states: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                found = os.stat(path)
                states.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                states.append(None)
        return tuple(states)

    def _reload_if_changed(self) -> None:
        state = self._read_state()
        if state == self._state:
            return
        self._state = state
        # In a thread, because decrypting a key store can take a tenth of a second.
        self._offload(lambda: server_context(self._options)).addCallbacks(self._loaded, self._not_loaded)

    def _loaded(self, context: SSL.Context) -> None:
        self._context = context
        log.info("new connections use the changed certificate: {files}", files=", ".join(self._files))

    def _not_loaded(self, failure: Failure) -> None:
        if failure.check(SettingsError) is None:
            log.failure("reading {files} failed", failure, files=", ".join(self._files))
        else:
            reason = failure.getErrorMessage()
            log.error("the changed certificate is invalid, the previous one stays in use: {reason}", reason=reason)
