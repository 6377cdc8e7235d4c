"""The admin API's port."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.web.http import combinedLogFormatter, datetimeToLogString
from twisted.web.server import Site

from kreplica.admin.groups import Groups, GroupsApp
from kreplica.admin.health import HealthApp, Readiness
from kreplica.admin.metrics import Figures, MetricsApp
from kreplica.admin.root import Root
from kreplica.errors import SettingsError
from kreplica.runtime import Runtime

REQUEST_SECONDS_MAX = 60


class AdminSite:
    """:param host: the address to listen on; without a token only loopback is sensible."""

    def __init__(
        self, runtime: Runtime, readiness: Readiness, figures: Figures, groups: Groups, *, host: str, port: int
    ) -> None:
        reactor = self._reactor = runtime.reactor
        root = Root(HealthApp(readiness), MetricsApp(figures, runtime.offload), GroupsApp(groups))
        self._site = Site(
            root.app.resource(),
            timeout=REQUEST_SECONDS_MAX,
            reactor=reactor,
            logFormatter=_access_line,
        )
        self._host = host
        self._asked_port = port
        self._listening: Any = None

    @property
    def port(self) -> int:
        """The port that it got."""
        return int(self._listening.getHost().port)

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """:raise SettingsError: where the port is taken; the text says what to do."""
        try:
            self._listening = self._reactor.listenTCP(self._asked_port, self._site, interface=self._host)
        except CannotListenError as error:
            raise SettingsError(
                f"the admin API cannot listen on {self._host}:{self._asked_port}: {error.socketError}; "
                "choose another with kreplica.admin.listener (standalone: --admin-port)"
            ) from None

    async def stop(self) -> None:
        if self._listening is not None:
            listening, self._listening = self._listening, None
            await maybeDeferred(listening.stopListening)


def _access_line(_: str, request: Any) -> str:
    # The site would take the reactor's seconds for a date, which they are not.
    return str(combinedLogFormatter(datetimeToLogString(), request))
