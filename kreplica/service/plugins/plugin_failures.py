"""Logs and counts the failures of one plugin."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.runtime import Reactor

log = Logger()

LOG_INTERVAL_S = 1.0
"""Minimum interval between log entries, so that a plugin that fails on every record does not fill the disk."""


class PluginFailures:
    """Failures of one plugin; all are counted, but at most one per ``LOG_INTERVAL_S`` is logged.

    :ivar errors: the number of exceptions, invalid results and timeouts.
    """

    def __init__(self, reactor: Reactor, name: str) -> None:
        self.name = name
        self.errors = 0
        self._reactor = reactor
        self._logged_s = -LOG_INTERVAL_S

    def record_exception(self, activity: str) -> None:
        """Record the current exception; must be called inside the ``except`` block.

        :param activity: the activity that failed, such as "handling a batch".
        """
        if self._count():
            log.failure("the plugin {plugin} failed while {activity}", plugin=self.name, activity=activity)

    def record_misbehaviour(self, text: str) -> None:
        """Record an invalid result or a timeout."""
        if self._count():
            log.error("the plugin {plugin} {text}", plugin=self.name, text=text)

    def _count(self) -> bool:
        self.errors += 1
        now_s = self._reactor.seconds()
        if now_s - self._logged_s < LOG_INTERVAL_S:
            return False
        self._logged_s = now_s
        return True
