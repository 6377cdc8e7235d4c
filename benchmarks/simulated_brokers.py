"""Brokers that acknowledge every command, so that only the controller's own work is measured.

``python -m benchmarks.simulated_brokers COUNT`` listens on this number of ports, prints them, and responds to
LeaderAndIsr, UpdateMetadata and StopReplica without errors, until its standard input ends.
"""

from __future__ import annotations

import subprocess
import sys
from struct import Struct
from types import TracebackType

from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from kreplica.wire.headers import build_response_header, parse_request_header
from kreplica.wire.messages import APIS

_LENGTH = Struct(">i")


class ConfirmsCommands(Protocol):
    """Responds to each request as soon as it has been received completely."""

    def __init__(self) -> None:
        self._received = bytearray()

    def dataReceived(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4:
            (size,) = _LENGTH.unpack_from(received)
            if len(received) < 4 + size:
                return
            self._respond(bytes(received[4 : 4 + min(size, 300)]))
            del received[: 4 + size]

    def _respond(self, start: bytes) -> None:
        header = parse_request_header(start)
        api, version = APIS[header.api_key], header.api_version
        head = build_response_header(api.response_header_version(version), header.correlation_id)
        body = api.response.build(version, {"error_code": 0})
        self.transport.write(_LENGTH.pack(len(head) + len(body)) + head + body)


class SimulatedBrokers:
    """Simulated brokers in a separate process, as a context manager.

    :ivar ports: one for each broker.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.ports: list[int] = []

    def __enter__(self) -> SimulatedBrokers:
        command = [sys.executable, "-m", "benchmarks.simulated_brokers", str(self._count)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ports = [int(port) for port in self._process.stdout.readline().split()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def main(count: int) -> None:
    """Listen until standard input ends."""
    from twisted.internet import reactor, stdio

    class Parent(Protocol):
        def connectionLost(self, reason: Failure = connectionDone) -> None:
            reactor.stop()

    ports = [reactor.listenTCP(0, Factory.forProtocol(ConfirmsCommands), interface="127.0.0.1") for _ in range(count)]
    print(*(port.getHost().port for port in ports), flush=True)
    stdio.StandardIO(Parent())
    reactor.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
