"""A connection to one broker: versions, correlation ids, timeouts, frames of bounded size."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kreplica.blocking.blocking_runtime import BlockingRuntime
from kreplica.blocking.coroutines import run
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    MalformedAnswer,
    RequestTimedOut,
)
from kreplica.client_core.negotiation import VersionRange, common_version, negotiate_versions, parse_response
from kreplica.client_core.options import ClientOptions
from kreplica.errors import KafkaError, ProtocolError
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.message_parsers import MessageParsers
from kreplica.wire.messages import API_VERSIONS, Api

RECEIVED_SIZE_MAX = 1 << 20
"""Maximum number of bytes per socket read."""

THROTTLE_S_MAX = 30.0
"""Maximum throttle time that is obeyed."""

CORRELATION_ID_END = 1 << 31


@dataclass(slots=True, eq=False)
class Pending:
    """A request without a response yet.

    :ivar answer: the body of the response, once received.
    """

    api: Api
    version: int
    correlation_id: int
    deadline_s: float
    answer: dict[str, Any] | None = None


class Connection:
    """Open until ``close`` or an error.

    :param plain: the connected socket, plain or TLS.
    :param peer: the broker's address, for error texts.
    """

    def __init__(self, plain: socket.socket, peer: str, options: ClientOptions, runtime: BlockingRuntime) -> None:
        self.peer = peer
        self.socket = plain
        self.closed = False
        self._options = options
        self._runtime = runtime
        self.versions: Mapping[int, VersionRange] = {}
        self._chosen: dict[tuple[int, int | None], int] = {}
        self._correlation_id = 0
        self._pending: deque[Pending] = deque()
        self._frames = FrameReader(options.answer_size_max)
        self._parsers = MessageParsers()
        self._silent_until_s = runtime.clock()

    @classmethod
    def open(cls, address: Address, options: ClientOptions, runtime: BlockingRuntime) -> Connection:
        """Connect, and negotiate API versions.

        :raise ConnectionFailed: the connection could not be opened.
        """
        try:
            made = runtime.connect(address.host, address.port, options.connect_timeout_s)
        except OSError as error:
            raise ConnectionFailed(f"{address}: {error}") from error
        connection = cls(made, str(address), options, runtime)
        try:
            connection.negotiate(options.connect_timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def negotiate(self, timeout_s: float) -> None:
        """Request the broker's API versions (KIP-35), in the newest version of the request that it understands.

        :raise BrokerRefused: the broker refused the request.
        """

        async def request(api: Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
            return self.exchange(api, version, body, timeout_s)

        try:
            self.versions = run(negotiate_versions(request))
        except ClientError:
            raise
        except KafkaError as error:
            raise BrokerRefused(error.code, f"versions of {self.peer}") from error

    def version(self, api: Api, at_most: int | None = None) -> int:
        """Return the highest version of an API that client and broker support.

        :param at_most: highest version to use.
        :raise UnsupportedVersion: there is none.
        """
        found = self._chosen.get((api.key, at_most))
        if found is None:
            found = common_version(api, self.versions.get(api.key), at_most, self.peer)
            self._chosen[api.key, at_most] = found
        return found

    @property
    def pending(self) -> int:
        """Number of requests without a response."""
        return len(self._pending)

    @property
    def deadline_s(self) -> float | None:
        """Deadline of the first pending request, or None."""
        return self._pending[0].deadline_s if self._pending else None

    @property
    def silence_s(self) -> float:
        """Remaining throttle time in seconds (KIP-219), normally 0."""
        return max(0.0, self._silent_until_s - self._runtime.clock())

    def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its response; not allowed while other requests are pending.

        :param timeout_s: time until the response; ``request_timeout_s`` of the options by default.
        :raise ClientError: no response was received; the connection is then closed, unless nothing was sent.
        """
        patience_s = self._options.request_timeout_s if timeout_s is None else timeout_s
        return self.exchange(api, self.version(api, at_most), body, patience_s)

    def exchange(self, api: Api, version: int, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request in a given version and wait for its response.

        :raise ClientError: no response was received; the connection is then closed.
        """
        if self._pending:
            raise ValueError(f"{self.peer}: {len(self._pending)} requests are pending")
        if self.silence_s:
            self._runtime.sleep(self.silence_s)
        try:
            sent = self.send(api, body, version=version, timeout_s=timeout_s)
            while sent.answer is None:
                self.receive(timeout_s)
        except BaseException:
            self.close()  # also after an interrupt: the next response would belong to this request
            raise
        return sent.answer

    def send(self, api: Api, body: dict[str, Any], *, version: int, timeout_s: float, answered: bool = True) -> Pending:
        """Send a request; ``receive`` returns its response.

        :param version: a version that ``version`` returned.
        :param answered: False if the broker sends no response.
        :raise ConnectionLost: the request could not be sent.
        """
        if self.closed:
            raise ConnectionLost(f"{self.peer}: the connection is closed")
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_ID_END
        sent = Pending(api, version, self._correlation_id, self._runtime.clock() + timeout_s)
        header = build_request_header(
            api.request_header_version(version), api.key, version, sent.correlation_id, self._options.client_id
        )
        content = api.request.build(version, body)
        length = (len(header) + len(content)).to_bytes(4, "big")
        try:
            self.socket.settimeout(timeout_s)
            self.socket.sendall(b"".join((length, header, content)))
        except OSError as error:
            raise self._lost(error) from error
        if answered:
            self._pending.append(sent)
        return sent

    def receive(self, timeout_s: float) -> list[Pending]:
        """Wait for bytes, at most ``timeout_s``, and return the requests that they answer.

        :raise ConnectionLost: the connection was closed.
        :raise RequestTimedOut: the first pending request timed out.
        :raise MalformedAnswer: the bytes are not a response to it.
        """
        if self.closed:
            raise ConnectionLost(f"{self.peer}: the connection is closed")
        left_s = timeout_s
        if self._pending:
            left_s = min(timeout_s, self._pending[0].deadline_s - self._runtime.clock())
        if not self._runtime.wait_readable([self.socket], left_s):
            self.check_time()
            return []
        try:
            answered = [self._answered(frame) for frame in self._take()]
        except ProtocolError as error:
            self.close()
            raise MalformedAnswer(f"{self.peer}: {error}") from error
        if not answered:
            self.check_time()
        return answered

    def check_time(self) -> None:
        """:raise RequestTimedOut: the first pending request timed out; the connection is closed."""
        if self._pending and self._runtime.clock() >= self._pending[0].deadline_s:
            name = self._pending[0].api.name
            self.close()
            raise RequestTimedOut(f"{self.peer}: no answer to {name} in time")

    def _take(self) -> list[memoryview]:
        """Return the frames that are complete; a long frame is received in place."""
        room = self._frames.receive_buffer
        try:
            self.socket.settimeout(self._options.request_timeout_s)
            data = b"" if room is not None else self.socket.recv(RECEIVED_SIZE_MAX)
            size = len(data) if room is None else self.socket.recv_into(room)
        except OSError as error:
            raise self._lost(error) from error
        if not size:
            raise self._lost("closed by the broker")
        if room is None:
            return list(self._frames.feed(data))
        frame = self._frames.received(size)
        return [] if frame is None else [frame]

    def _answered(self, frame: memoryview) -> Pending:
        if not self._pending:
            raise ProtocolError("frame", "a response without a request")
        first = self._pending[0]
        api, version = first.api, first.version
        correlation_id, position = parse_response_header(api.response_header_version(version), frame)
        if correlation_id != first.correlation_id:
            raise ProtocolError("frame", f"response {correlation_id} instead of {first.correlation_id}")
        if api is API_VERSIONS:
            first.answer = parse_response(self._parsers, api, version, frame, position)
        else:  # saves a call per response
            first.answer = self._parsers.parse(api.response, version, frame, position)
        throttle_s = first.answer.get("throttle_time_ms", 0) / 1000
        if throttle_s > 0:
            self._silent_until_s = self._runtime.clock() + min(throttle_s, THROTTLE_S_MAX)
        return self._pending.popleft()

    def _lost(self, reason: object) -> ClientError:
        self.close()
        return ConnectionLost(f"{self.peer}: {reason}")

    def close(self) -> None:
        """Close the connection; may be repeated."""
        self.closed = True
        self._pending.clear()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
