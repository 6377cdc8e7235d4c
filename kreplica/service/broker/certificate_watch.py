"""Tracks when the certificates of a broker's listeners expire, for metrics, explanations and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Runtime
from kreplica.security.tls.expiry import DAY_MS, CertificateExpiry, expiry_of

if TYPE_CHECKING:
    from kreplica.security.tls.reloading import ReloadedTls

log = Logger()

INTERVAL_S = 600.0
"""Interval of the checks."""


class CertificateWatch:
    """Logs a warning once a day for each certificate that expires soon.

    If there is a listener with TLS, a timer runs from ``start`` to ``stop``.

    :param warning_days: warn if a certificate expires within this number of days.
    """

    def __init__(self, runtime: Runtime, warning_days: int) -> None:
        self._reactor = runtime.reactor
        self._wall_clock_ms = runtime.wall_clock_ms
        self._warning_days = warning_days
        self._listeners: dict[str, ReloadedTls] = {}
        self._logged_ms: dict[str, int] = {}
        self._timer: IDelayedCall | None = None

    def add(self, listener: str, tls: ReloadedTls) -> None:
        """Watch the certificate of a listener."""
        self._listeners[listener] = tls

    def start(self) -> None:
        """Start checking."""
        if self._listeners:
            self._check()

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def expiries(self) -> Sequence[CertificateExpiry]:
        """The current certificate of each listener."""
        now_ms = self._wall_clock_ms()
        for tls in self._listeners.values():
            tls.reload_if_due()  # the certificate of an idle listener may have been replaced
        return [expiry_of(name, tls.certificates, now_ms) for name, tls in self._listeners.items()]

    @property
    def expiring(self) -> Sequence[CertificateExpiry]:
        """The certificates that expire soon or have expired."""
        return [each for each in self.expiries if each.days <= self._warning_days]

    def _check(self) -> None:
        self._timer = self._reactor.callLater(INTERVAL_S, self._check)
        now_ms = self._wall_clock_ms()
        expiring = {each.listener: each for each in self.expiring}
        self._logged_ms = {name: at_ms for name, at_ms in self._logged_ms.items() if name in expiring}
        for name, each in expiring.items():
            if name not in self._logged_ms or now_ms - self._logged_ms[name] >= DAY_MS:
                self._logged_ms[name] = now_ms
                log.warn("{text} Replace it: {files}", text=each.text, files=", ".join(self._listeners[name].files))
