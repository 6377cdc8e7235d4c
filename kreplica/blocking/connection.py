"""One connection to one broker: versions, correlation, time-outs, frames of bounded size."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import kreplica
from kreplica.blocking.blocking_runtime import Surroundings
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import (
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    MalformedAnswer,
    RequestTimedOut,
    UnsupportedVersion,
    check,
)
from kreplica.client_core.options import ClientOptions
from kreplica.errors import ErrorCode, ProtocolError
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import API_VERSIONS, Api

RECEIVED_SIZE_MAX = 1 << 20
"""Bytes that are taken from the socket at once."""

THROTTLE_S_MAX = 30.0
"""A broker that asks for more silence than this gets this much."""

CORRELATION_ID_END = 1 << 31

_CLIENT = {"client_software_name": "kreplica", "client_software_version": kreplica.__version__}
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


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

    def __init__(self, plain: socket.socket, peer: str, options: ClientOptions, surroundings: Surroundings) -> None:
        self.peer = peer
        self.socket = plain
        self.closed = False
        self._options = options
        self._surroundings = surroundings
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._correlation_id = 0
        self._pending: deque[Pending] = deque()
        self._frames = FrameReader(options.answer_size_max)
        self._silent_until_s = surroundings.clock()

    @classmethod
    def open(cls, address: Address, options: ClientOptions, surroundings: Surroundings) -> Connection:
        """Connect, and ask which versions the broker speaks.

        :raise ConnectionFailed: no connection came about.
        """
        try:
            made = surroundings.connect(address.host, address.port, options.connect_timeout_s)
        except OSError as error:
            raise ConnectionFailed(f"{address}: {error}") from error
        connection = cls(made, str(address), options, surroundings)
        try:
            connection.negotiate(options.connect_timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def negotiate(self, timeout_s: float) -> None:
        """Ask for the broker's versions (KIP-35), in the newest version of the question that it understands."""
        highest = API_VERSIONS.versions[1]
        answer = self._exchange(API_VERSIONS, highest, _CLIENT, timeout_s)
        if answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
            known = {row["api_key"]: row["max_version"] for row in answer["api_keys"]}
            version = max(0, min(known.get(API_VERSIONS.key, 0), highest))
            answer = self._exchange(API_VERSIONS, version, _CLIENT, timeout_s)
        check(answer, f"versions of {self.peer}")
        self._versions = {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}

    def version(self, api: Api, at_most: int | None = None) -> int:
        """The highest version that both sides speak.

        :param at_most: the highest that is wanted.
        :raise UnsupportedVersion: there is none.
        """
        wanted = api.versions[1] if at_most is None else min(at_most, api.versions[1])
        lowest, highest = self._versions.get(api.key, (0, -1))
        version = min(wanted, highest)
        if version < max(lowest, api.versions[0]):
            has = f"has it in versions {lowest} to {highest}" if highest >= 0 else "does not have it"
            raise UnsupportedVersion(f"{api.name} in versions {api.versions[0]} to {wanted}: {self.peer} {has}")
        return version

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
        return max(0.0, self._silent_until_s - self._surroundings.clock())

    def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Ask, and wait for the answer; not while others are pending.

        :param timeout_s: how long the broker may take; the options' unless given.
        :raise ClientError: no answer came; the connection is closed then, unless nothing was sent.
        """
        patience_s = self._options.request_timeout_s if timeout_s is None else timeout_s
        return self._exchange(api, self.version(api, at_most), body, patience_s)

    def _exchange(self, api: Api, version: int, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._pending:
            raise ValueError(f"{self.peer}: {len(self._pending)} answers are outstanding")
        if self.silence_s:
            self._surroundings.sleep(self.silence_s)
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
        sent = Pending(api, version, self._correlation_id, self._surroundings.clock() + timeout_s)
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
            left_s = min(timeout_s, self._pending[0].deadline_s - self._surroundings.clock())
        if not self._surroundings.wait_readable([self.socket], left_s):
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
        if self._pending and self._surroundings.clock() >= self._pending[0].deadline_s:
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
        if api is API_VERSIONS and frame[position : position + 2] == _UNSUPPORTED:
            version = 0  # the only version that both sides are sure to have
        first.answer = api.response.parse(version, frame, position)
        throttle_s = first.answer.get("throttle_time_ms", 0) / 1000
        if throttle_s > 0:
            self._silent_until_s = self._surroundings.clock() + min(throttle_s, THROTTLE_S_MAX)
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
