"""A server whose handlers the test controls, and its clients, for each transport and reactor."""

from __future__ import annotations

import random
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHandshakeListener, IReactorFDSet
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.internet.task import deferLater
from twisted.protocols.policies import ProtocolWrapper
from zope.interface import implementer

from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.runtime.offload import ThreadOffload
from kreplica.runtime.os_disk import OsDisk
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.request import Request
from kreplica.server.quotas.connection_limits import ConnectionLimits
from kreplica.server.transport.listeners import Server
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import APIS, FETCH, PRODUCE, Api
from tests.support.real_reactor import run

if TYPE_CHECKING:
    from kreplica.security.tls.listener import ListenerTls

PRODUCE_VERSION = 7
FETCH_VERSION = 11


class Handlers:
    """Handlers of Produce and Fetch.

    Produce returns the number of received bytes; with acks=all, it waits for ``release``. Fetch returns ``records``.
    """

    def __init__(self) -> None:
        self.parked: deque[Request] = deque()
        self.received: list[int] = []
        self.contents: list[bytes] = []
        self.keep_contents = False
        self.abandoned: list[int] = []
        self.records: Any = b""
        self.connections: list[Any] = []

    def table(self) -> dict[int, HandlerEntry]:
        return {
            PRODUCE.key: HandlerEntry(PRODUCE, 3, 9, self.produce),
            FETCH.key: HandlerEntry.of(FETCH, self.fetch),
        }

    def produce(self, request: Request) -> None:
        if request.connection not in self.connections:
            self.connections.append(request.connection)
        records = request.body["topic_data"][0]["partition_data"][0]["records"]
        if records[:4] == b"boom":
            raise LookupError("a handler that fails")
        if records[:7] == b"control":
            request.connection.mark_control()
        self.received.append(request.correlation_id)
        if self.keep_contents:
            self.contents.append(bytes(records))
        request.on_abandoned(lambda: self.abandoned.append(request.correlation_id))
        acks = request.body["acks"]
        if acks == 0:
            request.complete_without_response()
        elif acks == 1:
            request.respond(produced(len(records)))
        else:
            self.parked.append(request)

    def fetch(self, request: Request) -> None:
        self.received.append(request.correlation_id)
        row = {"partition_index": 0, "high_watermark": 9, "records": self.records}
        request.respond({"responses": [{"topic": "t", "partitions": [row]}]})

    def release(self) -> None:
        """Complete the oldest pending Produce."""
        self.parked.popleft().respond(produced(0))


def produced(size: int) -> dict[str, Any]:
    return {"responses": [{"name": "t", "partition_responses": [{"index": 0, "base_offset": size}]}]}


def request_frame(
    api: Api, version: int, correlation_id: int, body: dict[str, Any], client_id: str | None = "test"
) -> bytes:
    """Return a request with its length prefix, as it is sent."""
    header = build_request_header(api.request_header_version(version), api.key, version, correlation_id, client_id)
    frame = header + api.request.build(version, body)
    return struct.pack(">i", len(frame)) + frame


def produce_frame(correlation_id: int, records: bytes, acks: int = 1) -> bytes:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    body = {"acks": acks, "timeout_ms": 1000, "topic_data": data}
    return request_frame(PRODUCE, PRODUCE_VERSION, correlation_id, body)


def fetch_frame(correlation_id: int) -> bytes:
    return request_frame(FETCH, FETCH_VERSION, correlation_id, {"max_wait_ms": 0, "min_bytes": 0, "topics": []})


def parse_answer(frame: memoryview, key: int, version: int) -> tuple[int, dict[str, Any]]:
    """Return the correlation ID and the body of a response."""
    api = APIS[key]
    correlation_id, offset = parse_response_header(api.response_header_version(version), frame)
    return correlation_id, api.response.parse(version, frame, offset)


@implementer(IHandshakeListener)
class Client(Protocol):
    """One connection; a test awaits its responses one by one."""

    transport: Any

    def __init__(self) -> None:
        self.connected_ = Deferred[None]()
        self.frames: deque[bytes] = deque()
        self.is_closed = False
        self._reader = FrameReader()
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def connectionMade(self) -> None:
        if not isinstance(self.transport, ProtocolWrapper):
            self.connected_.callback(None)

    def handshakeCompleted(self) -> None:
        self.connected_.callback(None)

    def dataReceived(self, data: bytes) -> None:
        self.frames.extend(bytes(frame) for frame in self._reader.feed(data))
        self._notify_waiters()

    def connectionLost(self, reason: Any = None) -> None:
        self.is_closed = True
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        due = [entry for entry in self._waiting if entry[0]()]
        self._waiting = [entry for entry in self._waiting if entry not in due]
        for _, deferred in due:
            deferred.callback(None)

    async def _until(self, condition: Callable[[], bool]) -> None:
        if not condition():
            deferred = Deferred[None]()
            self._waiting.append((condition, deferred))
            await deferred

    def send(self, *frames: bytes) -> None:
        self.transport.write(b"".join(frames))

    async def answer(self, key: int = PRODUCE.key, version: int = PRODUCE_VERSION) -> tuple[int, dict[str, Any]]:
        """Return the next response.

        :raise ConnectionError: the server closed the connection.
        """
        await self._until(lambda: bool(self.frames) or self.is_closed)
        if not self.frames:
            raise ConnectionError("closed by the server")
        return parse_answer(memoryview(self.frames.popleft()), key, version)

    async def next_fetch(self) -> tuple[int, bytes]:
        """Return the correlation ID and the records of the next response, which must be that of a Fetch."""
        correlation_id, body = await self.answer(FETCH.key, FETCH_VERSION)
        return correlation_id, bytes(body["responses"][0]["partitions"][0]["records"])

    async def next_ids(self, count: int) -> list[int]:
        """Return the correlation IDs of the next Produce responses."""
        return [(await self.answer())[0] for _ in range(count)]

    async def wait_until_closed(self) -> None:
        """Wait for the server to close."""
        await self._until(lambda: self.is_closed)

    def close(self) -> None:
        self.transport.loseConnection()


@cache
def server_tls() -> ListenerTls:
    """Return the TLS of a listener; clients do not verify its certificate."""
    # Imported here because most tests need no OpenSSL.
    from kreplica.security.tls.development_ca import create_certificate, open_authority
    from kreplica.security.tls.listener import ListenerTls
    from kreplica.security.tls.options import TlsOptions

    with tempfile.TemporaryDirectory() as directory:
        certificate = create_certificate(Path(directory), open_authority(Path(directory), 10), "broker", ["host"], 10)
        options = TlsOptions(keystore_type="PEM", keystore_location=str(certificate))
        return ListenerTls(options, lambda: 0.0, _read_once)


def _read_once(*_: object) -> Any:
    raise AssertionError("the clock does not advance, so no file is read again")


class Scene:
    """One server, its handlers, and the transport through which clients reach it.

    :param use_tls: clients connect with TLS.
    """

    def __init__(
        self, runtime: Runtime, client_reactor: Any, host: str, *, use_twisted: bool, use_tls: bool = False
    ) -> None:
        self.runtime = runtime
        self.handlers = Handlers()
        self.host = host
        self.use_twisted = use_twisted
        self.use_tls = use_tls
        self.server: Server
        self.port = 0
        self._client_reactor = client_reactor
        self._clients: list[Client] = []

    @property
    def uses_epoll_transport(self) -> bool:
        return IReactorFDSet.providedBy(self.runtime.reactor) and not self.use_twisted

    def start(self, bounds: Bounds | None = None, limits: ConnectionLimits | None = None) -> None:
        self.server = Server(
            self.runtime, self.handlers.table(), bounds, limits=limits, use_twisted_transport=self.use_twisted
        )
        self.port = self.server.listen(Endpoint("PLAINTEXT", self.host, 0), server_tls() if self.use_tls else None)

    async def connect(self, port: int | None = None) -> Client:
        client = Client()
        factory = ClientFactory.forProtocol(lambda: client)  # type: ignore[arg-type]
        factory.noisy = False
        if self.use_tls:
            from twisted.internet.ssl import CertificateOptions
            from twisted.protocols.tls import TLSMemoryBIOFactory

            factory = TLSMemoryBIOFactory(CertificateOptions(), True, factory, self._client_reactor)  # type: ignore[assignment]
        self._client_reactor.connectTCP(self.host, self.port if port is None else port, factory)
        await client.connected_
        self._clients.append(client)
        return client

    async def pause(self, seconds: float = 0.0) -> None:
        """Run the event loop for some time."""
        await deferLater(self.runtime.reactor, seconds)  # type: ignore[arg-type]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run the event loop until the condition holds; otherwise, the runner's timeout ends the test."""
        while not condition():
            await self.pause(0.001)

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        await self.server.stop(timeout_s=1.0)
        assert len(self.server.resources.connections) == 0
        assert self.server.resources.partial_frames.held_bytes == 0


Scenario = Callable[[Scene], Coroutine[Any, Any, None]]

ENVIRONMENTS = ("epoll", "twisted", "epoll simulated", "twisted simulated")
ALL_ENVIRONMENTS = (*ENVIRONMENTS, "tls")


def play(environment: str, scenario: Scenario, timeout_s: float = 20.0) -> None:
    """Run a test function in one of the environments."""
    use_twisted = environment.startswith("twisted")
    if environment.endswith("simulated"):
        simulation = Simulation(seed=7)
        broker, client = simulation.host("broker"), simulation.host("client")
        scene = Scene(broker.runtime, client.reactor, "broker", use_twisted=use_twisted)
        simulation.run_until(_run_and_stop(scene, scenario), timeout_s)
        assert simulation.failures == []
        return
    from twisted.internet import reactor

    offload = ThreadOffload(reactor, threads_max=1)
    runtime = Runtime(reactor, OsDisk(), offload, random.Random(1), lambda: 0)  # type: ignore[arg-type]
    try:
        scene = Scene(runtime, reactor, "127.0.0.1", use_twisted=use_twisted, use_tls=environment == "tls")
        run(_run_and_stop(scene, scenario), timeout_s)
    finally:
        offload.stop()


async def _run_and_stop(scene: Scene, scenario: Scenario) -> None:
    try:
        await scenario(scene)
    finally:
        await scene.stop()
