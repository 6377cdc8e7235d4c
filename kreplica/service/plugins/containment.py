"""One plugin's failures: nothing that it raises gets further than here."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.runtime import Reactor

log = Logger()

LOGGED_EVERY_S = 1.0
"""A plugin that fails with each record would fill the disk otherwise; all failures are counted."""


class Containment:
    """:ivar errors: how often it has raised, or answered what is no answer."""

    def __init__(self, reactor: Reactor, name: str) -> None:
        self.name = name
        self.errors = 0
        self._reactor = reactor
        self._logged_s = -LOGGED_EVERY_S

    def failed(self, what: str) -> None:
        """Note an exception; called inside the ``except``.

        :param what: what the plugin was doing, as a participle.
        """
        if self._count():
            log.failure("the plugin {plugin} failed, {what}", plugin=self.name, what=what)

    def wrong(self, what: str) -> None:
        """Note an answer that is none."""
        if self._count():
            log.error("the plugin {plugin} gave a wrong answer: {what}", plugin=self.name, what=what)

    def _count(self) -> bool:
        self.errors += 1
        now_s = self._reactor.seconds()
        if now_s - self._logged_s < LOGGED_EVERY_S:
            return False
        self._logged_s = now_s
        return True
