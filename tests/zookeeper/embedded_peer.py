"""A protocol-level client for tests of the coordinator, which returns every message that it receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.python.failure import Failure

from kreplica.testing.simulator.simulation import DATA_DIRECTORY, Host, Simulation
from kreplica.zookeeper.embedded.disk_store import DiskStore
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings
from kreplica.zookeeper.embedded.store import Store
from kreplica.zookeeper.framing import FrameSplitter
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import (
    REPLY_HEADER,
    XID_WATCH_EVENT,
    ConnectRequest,
    ConnectResponse,
    EventType,
    decode_watch_event,
    frame,
    request_frame,
)
from kreplica.zookeeper.requests import Request, opcode_of

PORT = 2181
TICK_TIME_MS = 1000
FRAME_SIZE_MAX = 64 << 20


class Reply(NamedTuple):
    """A response, or an event if the transaction ID is -1."""

    xid: int
    zxid: int
    error: int
    body: bytes

    @property
    def event(self) -> tuple[EventType, str]:
        """The decoded event: (type, path)."""
        assert self.xid == XID_WATCH_EVENT, self
        event = decode_watch_event(Reader(self.body))
        return event.type, event.path


class Peer(Protocol):
    """A connection to the coordinator.

    :ivar frames: received frames without their lengths, in order.
    :ivar raw: bytes received while ``collect_raw`` was set.
    :ivar closed: fires when the connection is closed.
    """

    transport: Any

    def __init__(self) -> None:
        self.frames: DeferredQueue[bytes] = DeferredQueue()
        self.raw = b""
        self.is_closed = False
        self.closed: Deferred[None] = Deferred()
        self._splitter = FrameSplitter(FRAME_SIZE_MAX)
        self._xid = 0
        self.collect_raw = False

    def dataReceived(self, data: bytes) -> None:
        if self.collect_raw:
            self.raw += data
            return
        for buffer, start, end in self._splitter.frames(data):
            self.frames.put(buffer[start:end])

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_closed = True
        self.closed.callback(None)

    def send_raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self.transport.write(data)

    def send(self, request: Request) -> int:
        """Send a request, and return its transaction ID."""
        self._xid += 1
        self.send_raw(request_frame(self._xid, opcode_of(request), request.encode()))
        return self._xid

    def send_code(self, opcode: int, body: bytes) -> int:
        """Send a request whose operation has no class, and return its transaction ID."""
        self._xid += 1
        self.send_raw(request_frame(self._xid, opcode, body))
        return self._xid

    async def next(self) -> Reply:
        """Return the next response or event."""
        data = await self.frames.get()
        return Reply(*REPLY_HEADER.unpack_from(data), data[REPLY_HEADER.size :])

    async def request(self, request: Request) -> Reply:
        """Send a request and return its response; no other message may arrive in between."""
        xid = self.send(request)
        reply = await self.next()
        assert reply.xid == xid, reply
        return reply

    async def connect(
        self, timeout_ms: int = 10_000, session: ConnectResponse | None = None, last_zxid_seen: int = 0
    ) -> ConnectResponse:
        """Perform the handshake for a new or an existing session."""
        session_id, password = (session.session_id, session.password) if session else (0, bytes(16))
        self.send_raw(frame(ConnectRequest(last_zxid_seen, timeout_ms, session_id, password).encode()))
        return ConnectResponse.decode(Reader(await self.frames.get()))


class Scene:
    """A coordinator on a simulated host, and peers on another one."""

    def __init__(
        self,
        settings: ZooKeeperServerSettings | None = None,
        seed: int = 1,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.simulation = Simulation(seed, trace)
        self.settings = settings or ZooKeeperServerSettings(tick_time_ms=TICK_TIME_MS)
        self.host: Host = self.simulation.host("coordinator")
        self.failures: list[Failure] = []
        self.start()

    def store(self) -> Store:
        """Return a store on the coordinator's disk."""
        return DiskStore(DATA_DIRECTORY, self.host.runtime.disk, self.host.runtime.offload)

    def start(self) -> None:
        """Start a coordinator with the state that the previous one has stored."""
        self.coordinator = EmbeddedZooKeeper(
            self.host.runtime,
            port=PORT,
            interface="",
            store=self.store(),
            settings=self.settings,
            on_failure=self.failures.append,
        )
        self.run(self.coordinator.start())

    def peer(self, host: str = "client") -> Peer:
        """Open a connection."""
        connected: Deferred[Peer] = Deferred()

        class Factory(ClientFactory):
            noisy = False

            def buildProtocol(self, addr: Any) -> Peer:
                peer = Peer()
                peer.connectionMade = lambda: connected.callback(peer)  # type: ignore[method-assign]
                return peer

        self.simulation.host(host).runtime.reactor.connectTCP("coordinator", PORT, Factory())
        return self.run(connected)

    def session(self, timeout_ms: int = 10_000, host: str = "client") -> tuple[Peer, ConnectResponse]:
        """Open a connection with a new session."""
        peer = self.peer(host)
        return peer, self.run(peer.connect(timeout_ms))

    def run(self, goal: Any) -> Any:
        """Advance virtual time until a Deferred or coroutine completes, and return its result."""
        return self.simulation.run_until(goal)

    def request(self, peer: Peer, request: Request) -> Reply:
        """Send a request and return its response."""
        reply: Reply = self.run(peer.request(request))
        return reply

    def pass_time(self, seconds: float) -> None:
        """Advance virtual time."""
        self.simulation.run(seconds)
