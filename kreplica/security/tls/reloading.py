"""TLS context of a server that is built again when its files change."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import SettingsError

log = Logger()

CHECK_INTERVAL_S = 10.0
"""Minimum time between two checks for changed files."""

Offload = Callable[[Callable[[], SSL.Context]], Deferred[SSL.Context]]
"""Runs a function in a thread."""

_State = tuple[tuple[int, int, int] | None, ...]


@implementer(IOpenSSLServerConnectionCreator)
class ReloadedTls:
    """Creates the TLS connections of a server.

    Changed files are read again when a client connects; that connection and open ones keep the previous certificate.
    Invalid files are logged, and the previous certificate stays in use.

    :param files: paths of the files.
    :param build: reads the files and returns the context.
    :param seconds: monotonic clock.
    :raise SettingsError: from ``build``.
    """

    def __init__(
        self, files: Sequence[str], build: Callable[[], SSL.Context], seconds: Callable[[], float], offload: Offload
    ) -> None:
        self._files = files
        self._build = build
        self._seconds = seconds
        self._offload = offload
        self._state = self._read_state()
        self._context = build()
        self._check_at_s = seconds() + CHECK_INTERVAL_S

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        now_s = self._seconds()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            self._reload_if_changed()
        return SSL.Connection(self._context, None)

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
        self._offload(self._build).addCallbacks(self._loaded, self._not_loaded)

    def _loaded(self, context: SSL.Context) -> None:
        self._context = context
        log.info("new connections use the changed certificate: {files}", files=", ".join(self._files))

    def _not_loaded(self, failure: Failure) -> None:
        if failure.check(SettingsError) is None:
            log.failure("reading {files} failed", failure, files=", ".join(self._files))
        else:
            reason = failure.getErrorMessage()
            log.error("the changed certificate is invalid, the previous one stays in use: {reason}", reason=reason)
