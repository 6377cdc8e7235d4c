"""Logs and counts the failures of one plugin, so that they do not affect the broker."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.runtime import Reactor

log = Logger()

LOGGED_EVERY_S = 1.0
"""A plugin that fails with each record would fill the disk otherwise; all failures are counted."""


class PluginFailures:
    """Failures of one plugin.

    :ivar errors: the number of exceptions and invalid results.
    """

    def __init__(self, reactor: Reactor, name: str) -> None:
        self.name = name
        self.errors = 0
        self._reactor = reactor
        self._logged_s = -LOGGED_EVERY_S

    def failed(self, what: str) -> None:
        """Record the current exception; must be called inside the ``except`` block.

        :param what: what the plugin was doing, as a participle.
        """
        if self._count():
            log.failure("the plugin {plugin} failed, {what}", plugin=self.name, what=what)

    def wrong(self, what: str) -> None:
        """Record an invalid result."""
        if self._count():
            log.error("the plugin {plugin} returned an invalid result: {what}", plugin=self.name, what=what)

    def _count(self) -> bool:
        self.errors += 1
        now_s = self._reactor.seconds()
        if now_s - self._logged_s < LOGGED_EVERY_S:
            return False
        self._logged_s = now_s
        return True
