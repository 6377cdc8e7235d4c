"""A server's TLS context, rebuilt when its files change."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import SettingsError
from kreplica.security.tls.contexts import ServerTls

log = Logger()

CHECK_INTERVAL_S = 10.0
"""Minimum time between two checks for changed files."""

Build = Callable[[], ServerTls]
"""Reads the files and returns the server's TLS."""

Offload = Callable[[Build], Deferred[ServerTls]]
"""Runs a function in a thread."""

_State = tuple[tuple[int, int, int] | None, ...]


@implementer(IOpenSSLServerConnectionCreator)
class ReloadedTls:
    """Creates the TLS connections of a server.

    Changed files are detected and read when a client connects; this connection and all open ones keep the previous
    certificate. Invalid files are logged, and the previous certificate stays in use.

    :param build: reads the files.
    :param seconds: monotonic clock.
    :ivar files: paths of the files.
    :raise SettingsError: from ``build``.
    """

    def __init__(
        self, files: Sequence[str], build: Build, seconds: Callable[[], float], offload: Offload
    ) -> None:
        self.files = files
        self._build = build
        self._seconds = seconds
        self._offload = offload
        self._state = self._read_state()
        self._current = build()
        self._check_at_s = seconds() + CHECK_INTERVAL_S

    @property
    def certificates(self) -> Sequence[x509.Certificate]:
        """The certificate for new connections and its issuers, in this order."""
        return self._current.certificates

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        self.reload_if_due()
        return SSL.Connection(self._current.context, None)

    def reload_if_due(self) -> None:
        """Read the files if they have changed, unless they were checked a moment ago."""
        now_s = self._seconds()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            self._reload_if_changed()

    def _read_state(self) -> _State:
        states: list[tuple[int, int, int] | None] = []
        for path in self.files:
            try:
                found = os.stat(path)
                states.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                states.append(None)
        return tuple(states)

    def replace(self, files: Sequence[str], build: Build) -> None:
        """Use other files for new connections, as soon as they have been read."""
        self.files, self._build = files, build
        self._state = self._read_state()
        self._start_building()

    def _reload_if_changed(self) -> None:
        state = self._read_state()
        if state != self._state:
            self._state = state
            self._start_building()

    def _start_building(self) -> None:
        build = self._build

        def loaded(current: ServerTls) -> None:
            if build is self._build:  # otherwise the files were replaced by others meanwhile
                self.use(current)
                log.info("new connections use the changed certificate: {files}", files=", ".join(self.files))

        # In a thread, because decrypting a key store can take a tenth of a second.
        self._offload(build).addCallbacks(loaded, self._not_loaded)

    def use(self, current: ServerTls) -> None:
        """Use this TLS for new connections."""
        self._current = current

    def _not_loaded(self, failure: Failure) -> None:
        if failure.check(SettingsError) is None:
            log.failure("reading {files} failed", failure, files=", ".join(self.files))
        else:
            reason = failure.getErrorMessage()
            log.error("the changed certificate is invalid; the previous one stays in use: {reason}", reason=reason)
