"""A broker, and prebuilt requests that measure the broker's cost independently of the client's speed.

Requests are sent in rounds over plain sockets: in each round, some connections send their requests, and then all
responses are read.  A broker therefore receives the same work in the same portions with 10 connections or partitions
and with 10,000.  Responses are parsed after the measured part.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.broker_process import cpu_s, resident_mb
from kreplica.wire.framing import frame
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import Api
from tests.support.standalone import StandaloneProcess

AT_ONCE = 10
"""Number of connections in a round."""

TIME_LIMIT_S = 60
SETTINGS = {"log.segment.delete.delay.ms": 0, "group.initial.rebalance.delay.ms": 0}
CLIENT_ID = "growth"

Value = dict[str, Any]


class Broker(StandaloneProcess):
    """A standalone process that keeps its ports when it is started again.

    :param settings: settings that differ from the defaults.
    """

    def __init__(self, directory: Path, settings: Mapping[str, object] = SETTINGS) -> None:
        super().__init__(directory, arguments=tuple(f"--override={name}={value}" for name, value in settings.items()))
        self.launched_s = 0.0

    def launch(self) -> None:
        self.launched_s = time.monotonic()
        super().launch()

    def cpu_s(self) -> float:
        """Return the CPU time of all threads since the start, from the scheduler's statistics."""
        return cpu_s(self.pid)

    def resident_mb(self) -> float:
        """Return the resident memory in MB (1e6 bytes)."""
        return resident_mb(self.pid)

    def idle_percent(self, seconds: float) -> float:
        """Return the CPU usage, in percent of one core, while the broker receives no requests."""
        before_s = self.cpu_s()
        time.sleep(seconds)
        return (self.cpu_s() - before_s) / seconds * 100


@dataclass(frozen=True)
class Kind:
    """A request API and a version of it whose header has no tags."""

    api: Api
    version: int

    def frame(self, body: Value) -> bytes:
        """Encode a request."""
        header = build_request_header(1, self.api.key, self.version, 1, CLIENT_ID)
        return frame(header + self.api.request.build(self.version, body))

    def parse(self, response: bytes) -> Value:
        """Parse the body of a response.

        :raise RuntimeError: the response contains an error code.
        """
        body = self.api.response.parse(self.version, response, 4)
        errors = sorted({code for code in _error_codes(body) if code})
        if errors:
            raise RuntimeError(f"{self.api.name} returned error {errors}")
        return body


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        yield value.get("error_code", 0)
        value = value.values()
    elif not isinstance(value, list):
        return
    for each in value:
        yield from _error_codes(each)


class Connection:
    """A blocking plain socket; a response that takes more than a minute is an ``OSError``."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIME_LIMIT_S, 0))
        self.send = self._socket.sendall
        self.close = self._socket.close

    def read_response(self) -> bytes:
        """Return the next response, without its size.

        :raise ConnectionError: the broker closed the connection.
        """
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data

    def request(self, kind: Kind, body: Value) -> Value:
        """Send one request.

        :return: the response.
        :raise RuntimeError: the response contains an error code.
        """
        self.send(kind.frame(body))
        return kind.parse(self.read_response())


@dataclass(frozen=True)
class Clients:
    """Connections that are used in turn.

    :param window: number of requests that each connection sends at once.
    """

    connections: Sequence[Connection]
    window: int

    @classmethod
    def one(cls, port: int, window: int = 50) -> Clients:
        """Create a client with one connection that has many requests in flight."""
        return cls([Connection(port)], window)

    def request_all(self, frames: Iterable[bytes]) -> list[bytes]:
        """Send all requests; ten connections at a time send their requests before the first response is read.

        :return: the responses.
        """
        responses: list[bytes] = []
        waiting, turns = iter(frames), cycle(self.connections)
        at_once = min(len(self.connections), AT_ONCE)
        while portion := list(islice(waiting, self.window * at_once)):
            pieces = [portion[start : start + self.window] for start in range(0, len(portion), self.window)]
            sent = list(zip(islice(turns, len(pieces)), pieces, strict=True))
            for connection, piece in sent:
                connection.send(b"".join(piece))
            responses += [connection.read_response() for connection, piece in sent for _ in piece]
        return responses

    def cost_us(self, broker: Broker, kind: Kind, frames: Iterable[bytes], count: int) -> float:
        """Return the broker's cost per request.

        :param frames: requests of this kind, sent in turn.
        :return: CPU time in microseconds.
        :raise RuntimeError: a response contains an error code.
        """
        before_s = broker.cpu_s()
        responses = self.request_all(islice(cycle(frames), count))
        spent_s = broker.cpu_s() - before_s
        for response in responses:
            kind.parse(response)
        return spent_s * 1e6 / count

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections:
            connection.close()
