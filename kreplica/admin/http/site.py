"""The HTTP server of the admin API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from twisted.internet.defer import maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.web.http import combinedLogFormatter, datetimeToLogString
from twisted.web.server import Request, Site

from kreplica.admin.http.access import READS
from kreplica.admin.http.bounded_requests import BoundedChannel, BoundedRequest, Connections
from kreplica.admin.http.callers import caller_of
from kreplica.errors import SettingsError
from kreplica.runtime import Reactor

if TYPE_CHECKING:
    from kreplica.security.tls.reloading import ReloadedTls

REQUEST_SECONDS_MAX = 60


class RootResource(Protocol):
    """A Twisted leaf resource that handles every request."""

    isLeaf: bool

    def render(self, request: Request) -> int: ...

    def stop(self) -> None:
        """Close open streams."""


class BackgroundLoop(Protocol):
    """A loop of the admin API that runs from ``start`` to ``stop``, such as ``HistorySampler``."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _Site(Site):
    """Logs writes only: dashboards poll every second, which would flood the log with reads."""

    noisy = False

    def log(self, request: Any) -> None:
        if request.method not in READS:
            super().log(request)


class AdminSite:
    """The HTTP server of an admin API.

    :param root: the root resource.
    :param host: the address to listen on; must be loopback unless callers authenticate.
    :param tls: the TLS configuration; None for plain HTTP.
    :param background: loops that run while the server listens.
    :param closing: additional cleanup, awaited by ``stop``.
    :ivar root: the root resource, which can also be served on another port.
    :ivar connections: the connections of this port.
    """

    def __init__(
        self,
        reactor: Reactor,
        root: RootResource,
        *,
        host: str,
        port: int,
        tls: ReloadedTls | None = None,
        background: Sequence[BackgroundLoop] = (),
        closing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._reactor = reactor
        self.root = root
        self.connections = Connections()
        self._site = _Site(  # type: ignore[no-untyped-call]
            root,
            requestFactory=BoundedRequest,
            timeout=REQUEST_SECONDS_MAX,
            reactor=reactor,
            logFormatter=_access_line,
        )
        # Replaces the default channel, which requires a library for HTTP/2.
        self._site.protocol = partial(BoundedChannel, self.connections)  # type: ignore[method-assign, assignment]
        self._host = host
        self._requested_port = port
        self._is_secure = tls is not None
        self._factory = self._site if tls is None else _secured(tls, self._site)
        self._background = background
        self._closing = closing
        self._listening: Any = None

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._listening.getHost().port)

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    @property
    def _scheme(self) -> str:
        return "https" if self._is_secure else "http"

    def announced_url(self, host_name: str) -> str:
        """Return the URL for other machines.

        :param host_name: the name of this machine for other brokers, used for a listener on all interfaces.
        """
        wildcards = ("", "0.0.0.0", "::")
        return f"{self._scheme}://{host_name}:{self.port}" if self._host in wildcards else self.url

    def start(self) -> None:
        """Start listening.

        :raise SettingsError: the port cannot be opened.
        """
        try:
            self._listening = self._reactor.listenTCP(self._requested_port, self._factory, interface=self._host)
        except CannotListenError as error:
            raise SettingsError(
                f"the admin API cannot listen on {self._host}:{self._requested_port}: {error.socketError}; "
                "choose another address with kreplica.admin.listener (standalone: --admin-port)"
            ) from None
        for loop in self._background:
            loop.start()

    async def stop(self) -> None:
        self.root.stop()
        for loop in self._background:
            loop.stop()
        if self._listening is not None:
            listening, self._listening = self._listening, None
            await maybeDeferred(listening.stopListening)
        if self._closing is not None:
            await self._closing()


def _secured(tls: ReloadedTls, site: Site) -> Any:
    from twisted.protocols.tls import TLSMemoryBIOFactory

    return TLSMemoryBIOFactory(tls, False, site)


def _access_line(_: str, request: Any) -> str:
    # The site would use the reactor's monotonic seconds as a date.
    line = str(combinedLogFormatter(datetimeToLogString(), request))
    user = quote(caller_of(request).user, safe=":=,@")
    return line.replace(" - - [", f" - {user} [", 1)
