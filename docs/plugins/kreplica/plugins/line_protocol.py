"""Extra listener for programs without a Kafka client: a line ``PUT TOPIC VALUE`` writes one record.

kreplica.extra.listeners=line-protocol
kreplica.plugin.line-protocol.listen=127.0.0.1:9099

$ nc 127.0.0.1 9099
PUT orders {"id": 7}
OK 0 41

The response to each line, in order, is ``OK PARTITION OFFSET`` once all in-sync replicas have the record, or ``ERROR``
and the reason.  The records of a connection are distributed round robin over the topic's partitions, one at a time: the
next line is read after the response to the previous line, so TCP flow control slows down a faster client.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineOnlyReceiver
from zope.interface import implementer

from kreplica.errors import KafkaError, KreplicaError
from kreplica.interfaces import BrokerView, IExtraListener, Plugin, PluginContext

LINE_BYTES_MAX = 64 * 1024
WAITING_MAX = 100
"""Maximum number of received lines without a response; clients that send more are disconnected."""

CONNECTIONS_MAX = 1000

line_protocol = Plugin(
    "line-protocol",
    IExtraListener,
    "kreplica.plugins.line_protocol:LineProtocol",
    "Accepts records as lines of text.",
    {"listen": "The address of the listener, as host:port."},
)


@implementer(IExtraListener)
class LineProtocol:
    """Listens for connections from ``start`` to ``stop``."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: ``listen`` is not host:port."""
        host, colon, port = context.settings.get("listen", "127.0.0.1:9099").rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError("listen: HOST:PORT is expected")
        self._address = (host, int(port))
        self._reactor = context.runtime.reactor
        self._factory = _Lines(context.broker)
        self._listening: Any = None

    @property
    def port(self) -> int:
        return int(self._listening.getHost().port)

    async def start(self) -> None:
        host, port = self._address
        self._listening = self._reactor.listenTCP(port, self._factory, interface=host)

    async def stop(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            await maybeDeferred(listening.stopListening)
        for connection in list(self._factory.connections):
            connection.transport.abortConnection()


class _Lines(Factory):
    noisy = False

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self.connections: dict[_Line, None] = {}

    def buildProtocol(self, addr: object) -> _Line | None:
        return _Line(self._broker, self.connections) if len(self.connections) < CONNECTIONS_MAX else None


class _Line(LineOnlyReceiver):
    """One connection.  While the client does not read responses, no further lines are read."""

    delimiter = b"\n"
    MAX_LENGTH = LINE_BYTES_MAX
    transport: Any

    def __init__(self, broker: BrokerView, connections: dict[_Line, None]) -> None:
        self._broker = broker
        self._connections = connections
        self._waiting: list[bytes] = []
        self._running: Deferred[None] | None = None
        self._next = 0
        self._is_full = False

    def connectionMade(self) -> None:
        self._connections[self] = None
        self.transport.registerProducer(self, True)

    def pauseProducing(self) -> None:
        self._is_full = True
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._is_full = False
        if self._running is None:
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        self._waiting.clear()

    def connectionLost(self, reason: object = None) -> None:
        self._connections.pop(self, None)
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()

    def lineReceived(self, line: bytes) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.transport.abortConnection()
            return
        self._waiting.append(line.removesuffix(b"\r"))
        self.transport.pauseProducing()
        if self._running is None:
            running = self._running = Deferred.fromCoroutine(self._answer_all())
            running.addErrback(lambda _: None)  # cancelled: the client is disconnected

    async def _answer_all(self) -> None:
        while self._waiting:
            answer = await self._answer(self._waiting.pop(0))
            self.transport.write(answer.encode() + self.delimiter)
        self._running = None
        if not self._is_full:
            self.transport.resumeProducing()

    async def _answer(self, line: bytes) -> str:
        words = line.split(b" ", 2)
        if len(words) != 3 or words[0] != b"PUT":
            return "ERROR expected: PUT TOPIC VALUE"
        topic = words[1].decode(errors="replace")
        count = self._broker.topics().get(topic)
        if count is None:
            return f"ERROR there is no topic {topic}"
        partition, self._next = self._next % count, self._next + 1
        try:
            return f"OK {partition} {await self._broker.produce(topic, partition, None, words[2])}"
        except KafkaError as error:
            return f"ERROR {error.code.name} {error.message}"
        except KreplicaError as error:
            return f"ERROR {error}"
