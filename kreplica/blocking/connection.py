"""One connection to one broker: versions, correlation, time-outs, frames of bounded size."""

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
from kreplica.client_core.negotiation import VersionRange, common_version, negotiate_versions, parse_answer
from kreplica.client_core.options import ClientOptions
from kreplica.errors import KafkaError, ProtocolError
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import Api

RECEIVED_SIZE_MAX = 1 << 20
"""Bytes that are taken from the socket at once."""

THROTTLE_S_MAX = 30.0
"""A broker that asks for more silence than this gets this much."""

CORRELATION_ID_END = 1 << 31


@dataclass(slots=True, eq=False)
class Pending:
    """A request whose answer is waited for.

    :ivar answer: the body, once it came.
    """

    api: Api
    version: int
    correlation_id: int
    deadline_s: float
    answer: dict[str, Any] | None = None


class Connection:
    """Open from the start, until ``close`` or an error, which closes it.

    :param plain: the connected socket, plain or TLS.
    :param peer: the broker, for texts.
    """

    def __init__(self, plain: socket.socket, peer: str, options: ClientOptions, runtime: BlockingRuntime) -> None:
        self.peer = peer
        self.socket = plain
        self.closed = False
        self._options = options
        self._runtime = runtime
        self.versions: Mapping[int, VersionRange] = {}
        self._correlation_id = 0
        self._pending: deque[Pending] = deque()
        self._frames = FrameReader(options.answer_size_max)
        self._silent_until_s = runtime.clock()

    @classmethod
    def open(cls, address: Address, options: ClientOptions, runtime: BlockingRuntime) -> Connection:
        """Connect, and ask which versions the broker speaks.

        :raise ConnectionFailed: no connection came about.
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
        return common_version(api, self.versions.get(api.key), at_most, self.peer)

    @property
    def pending(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    @property
    def deadline_s(self) -> float | None:
        """When the first of them has waited long enough, or None."""
        return self._pending[0].deadline_s if self._pending else None

    @property
    def silence_s(self) -> float:
        """For so long the broker wants to hear nothing (KIP-219); 0 as a rule."""
        return max(0.0, self._silent_until_s - self._runtime.clock())

    def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Ask, and wait for the answer; not while others are pending.

        :param timeout_s: how long the broker may take; the options' unless given.
        :raise ClientError: no answer came; the connection is closed then, unless nothing was sent.
        """
        patience_s = self._options.request_timeout_s if timeout_s is None else timeout_s
        return self.exchange(api, self.version(api, at_most), body, patience_s)

    def exchange(self, api: Api, version: int, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request in a given version and wait for its response.

        :raise ClientError: no response was received; the connection is then closed.
        """
        if self._pending:
            raise ValueError(f"{self.peer}: {len(self._pending)} answers are outstanding")
        if self.silence_s:
            self._runtime.sleep(self.silence_s)
        try:
            sent = self.send(api, body, version=version, timeout_s=timeout_s)
            while sent.answer is None:
                self.receive(timeout_s)
        except BaseException:
            self.close()  # also after an interrupt: the next answer would be another's
            raise
        return sent.answer

    def send(self, api: Api, body: dict[str, Any], *, version: int, timeout_s: float, answered: bool = True) -> Pending:
        """Send a request; its answer comes by ``receive``.

        :param version: one of those that ``version`` gives.
        :param answered: False where the broker does not answer at all.
        :raise ConnectionLost: it could not be sent.
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
        """Wait for bytes, at most so long, and give the requests that they answer: none, one or several.

        :raise ConnectionLost: it ended.
        :raise RequestTimedOut: the first of the pending ones has waited long enough.
        :raise MalformedAnswer: the bytes are no answer to what was asked.
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
        """:raise RequestTimedOut: the first of the pending ones has waited long enough; the connection is closed."""
        if self._pending and self._runtime.clock() >= self._pending[0].deadline_s:
            name = self._pending[0].api.name
            self.close()
            raise RequestTimedOut(f"{self.peer}: no answer to {name} in time")

    def _take(self) -> list[memoryview]:
        """The frames that end with what has come; the rest of a long one is received where it stays."""
        room = self._frames.room
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
        frame = self._frames.fill(size)
        return [] if frame is None else [frame]

    def _answered(self, frame: memoryview) -> Pending:
        if not self._pending:
            raise ProtocolError("frame", "an answer that nobody asked for")
        first = self._pending[0]
        api, version = first.api, first.version
        correlation_id, position = parse_response_header(api.response_header_version(version), frame)
        if correlation_id != first.correlation_id:
            raise ProtocolError("frame", f"answer {correlation_id} where {first.correlation_id} comes next")
        first.answer = parse_answer(api, version, frame, position)
        throttle_s = first.answer.get("throttle_time_ms", 0) / 1000
        if throttle_s > 0:
            self._silent_until_s = self._runtime.clock() + min(throttle_s, THROTTLE_S_MAX)
        return self._pending.popleft()

    def _lost(self, reason: object) -> ClientError:
        self.close()
        return ConnectionLost(f"{self.peer}: {reason}")

    def close(self) -> None:
        """Close it; again does nothing."""
        self.closed = True
        self._pending.clear()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
