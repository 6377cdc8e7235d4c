"""Connections of clients whose requests and responses are observed at the transport."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IProtocolFactory, IStreamClientEndpoint
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from zope.interface import implementer

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.security import SecuredEndpoint
from kreplica.runtime import Reactor
from kreplica.security.sasl.credentials import PasswordCredentials
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import parse_request_header, parse_response_header
from kreplica.wire.messages import APIS, Api


@dataclass(slots=True)
class Login:
    """Authentication of one connection, as its client sees it.

    :param credentials: the client's credentials.
    :ivar started_s: time of the last SaslHandshake.
    :ivar expires_s: end of the session; None before the first authentication.
    """

    host: str
    credentials: PasswordCredentials
    started_s: float = 0.0
    expires_s: float | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response.

    :param sent_s: time at which the client sent the request; the broker received it later.
    :param received_s: time at which the client received the response.
    """

    login: Login
    api: Api
    request: dict[str, Any]
    response: dict[str, Any]
    sent_s: float
    received_s: float


def observed_endpoint(
    credentials: Callable[[], PasswordCredentials], observe: Callable[[Exchange], None]
) -> EndpointMaker:
    """Return a function that creates endpoints that authenticate, with observed connections.

    :param credentials: returns the credentials of a new connection.
    :param observe: called with each exchange, before the client processes the response.
    """

    def make(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
        login = Login(host, credentials())
        endpoint = _ObservedEndpoint(tcp_endpoint(reactor, host, port, timeout_s), reactor, login, observe)
        return SecuredEndpoint(endpoint, None, login.credentials)

    return make


@implementer(IStreamClientEndpoint)
class _ObservedEndpoint:
    def __init__(
        self, endpoint: IStreamClientEndpoint, reactor: Reactor, login: Login, observe: Callable[[Exchange], None]
    ) -> None:
        self._endpoint = endpoint
        self._reactor = reactor
        self._login = login
        self._observe = observe

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        return self._endpoint.connect(_Observers(factory, self._reactor, self._login, self._observe))


class _Observers(WrappingFactory):
    noisy = False

    def __init__(
        self, factory: Any, reactor: Reactor, login: Login, observe: Callable[[Exchange], None]
    ) -> None:
        super().__init__(factory)  # type: ignore[no-untyped-call]
        self._reactor = reactor
        self._login = login
        self._observe = observe

    def buildProtocol(self, addr: IAddress | None) -> _Observer:
        return _Observer(self, self.wrappedFactory.buildProtocol(addr), self._reactor, self._login, self._observe)


class _Observer(ProtocolWrapper):
    def __init__(
        self,
        factory: Any,
        wrapped: Any,
        reactor: Reactor,
        login: Login,
        observe: Callable[[Exchange], None],
    ) -> None:
        super().__init__(factory, wrapped)
        self._reactor = reactor
        self._login = login
        self._observe = observe
        self._requests, self._responses = FrameReader(), FrameReader()
        self._outstanding: deque[tuple[Api, int, bytes, int, float]] = deque()

    def write(self, data: bytes) -> None:
        for frame in self._requests.feed(data):
            header = parse_request_header(frame)
            assert header.body_offset is not None, "the client sends only known versions"
            api = APIS[header.api_key]
            self._outstanding.append(
                (api, header.api_version, bytes(frame), header.body_offset, self._reactor.seconds())
            )
        super().write(data)  # type: ignore[no-untyped-call]

    def dataReceived(self, data: bytes) -> None:
        for frame in self._responses.feed(data):
            self._received(bytes(frame))
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def _received(self, frame: bytes) -> None:
        api, version, request, body, sent_s = self._outstanding.popleft()
        _, position = parse_response_header(api.response_header_version(version), frame)
        self._observe(
            Exchange(
                self._login,
                api,
                api.request.parse(version, request, body),
                api.response.parse(version, frame, position),
                sent_s,
                self._reactor.seconds(),
            )
        )
