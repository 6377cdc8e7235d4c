"""A connection to one broker: API versions, correlation ids, timeouts and frames of bounded size."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kreplica.blocking.blocking_runtime import BlockingRuntime
from kreplica.blocking.coroutines import run
from kreplica.client_core.addresses import Address
from kreplica.client_core.authentication import RENEWAL_SHARE, authenticate
from kreplica.client_core.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    MalformedResponse,
    RequestTimedOut,
)
from kreplica.client_core.negotiation import VersionRange, common_version, negotiate_versions, parse_response
from kreplica.client_core.options import ClientOptions
from kreplica.errors import KafkaError, ProtocolError, reason_of
from kreplica.security.sasl.credentials import SaslCredentials
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.message_parsers import MessageParsers
from kreplica.wire.messages import API_VERSIONS, Api

RECEIVED_SIZE_MAX = 1 << 20
"""Maximum number of bytes per socket read."""

THROTTLE_S_MAX = 30.0
"""Maximum throttle time that the client respects (KIP-219)."""

CORRELATION_ID_END = 1 << 31


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that has been sent.

    :ivar response: body of the response; None until it has been received.
    """

    api: Api
    version: int
    correlation_id: int
    deadline_s: float
    response: dict[str, Any] | None = None


class Connection:
    """A connection that stays open until ``close`` or an error.

    :param connected_socket: the connected socket, plain or TLS.
    :param peer: the broker's address, for error messages.
    """

    def __init__(
        self, connected_socket: socket.socket, peer: str, options: ClientOptions, runtime: BlockingRuntime
    ) -> None:
        self.peer = peer
        self.socket = connected_socket
        self.closed = False
        self._options = options
        self._runtime = runtime
        self.versions: Mapping[int, VersionRange] = {}
        self._version_cache: dict[tuple[int, int | None], int] = {}
        self._correlation_id = 0
        self._pending: deque[PendingRequest] = deque()
        self._frames = FrameReader(options.response_size_max)
        self._parsers = MessageParsers()
        self._throttled_until_s = runtime.clock()
        self._renew_at_s: float | None = None

    @classmethod
    def open(cls, address: Address, options: ClientOptions, runtime: BlockingRuntime) -> Connection:
        """Connect and negotiate API versions.

        :raise AuthenticationFailed: the broker's certificate or the client's credentials were rejected.
        :raise ConnectionFailed: the connection could not be opened.
        """
        try:
            connected_socket = runtime.connect(address.host, address.port, options.connect_timeout_s)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(f"{address}: {error}") from error
        except OSError as error:
            raise ConnectionFailed(f"{address}: {reason_of(error)}") from error
        connection = cls(connected_socket, str(address), options, runtime)
        try:
            if runtime.sasl is not None:
                connection.authenticate(runtime.sasl, options.connect_timeout_s)
            connection.negotiate(options.connect_timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def authenticate(self, credentials: SaslCredentials, timeout_s: float) -> None:
        """Authenticate with SASL; ``send`` re-authenticates before the session ends.

        :raise ClientError: the broker rejects the client or does not respond.
        """

        async def request(api: Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
            return self.exchange(api, version, body, timeout_s)

        lifetime_ms = run(authenticate(request, credentials, self.peer))
        if lifetime_ms:
            self._renew_at_s = self._runtime.clock() + lifetime_ms / 1000 * RENEWAL_SHARE

    def negotiate(self, timeout_s: float) -> None:
        """Request the broker's API versions (KIP-35), with the newest version of ApiVersions that the broker supports.

        :raise BrokerRefused: the broker rejected the request.
        """

        async def request(api: Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
            return self.exchange(api, version, body, timeout_s)

        try:
            self.versions = run(negotiate_versions(request))
        except ClientError:
            raise
        except KafkaError as error:
            raise BrokerRefused(error.code, f"API versions of {self.peer}") from error

    def version(self, api: Api, at_most: int | None = None) -> int:
        """Return the highest version of an API that both the client and the broker support.

        :param at_most: highest version to use.
        :raise UnsupportedVersion: there is no common version.
        """
        found = self._version_cache.get((api.key, at_most))
        if found is None:
            found = common_version(api, self.versions.get(api.key), at_most, self.peer)
            self._version_cache[api.key, at_most] = found
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
    def throttle_remaining_s(self) -> float:
        """Remaining throttle time in seconds (KIP-219); normally 0."""
        return max(0.0, self._throttled_until_s - self._runtime.clock())

    def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its response; not allowed while other requests are pending.

        :param timeout_s: time to wait for the response; by default, the option ``request_timeout_s``.
        :raise ClientError: no response was received; the connection is closed unless the request was not sent.
        """
        timeout_s = self._options.request_timeout_s if timeout_s is None else timeout_s
        return self.exchange(api, self.version(api, at_most), body, timeout_s)

    def exchange(self, api: Api, version: int, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request in a given version and wait for its response.

        :raise ClientError: no response was received; the connection is then closed.
        """
        if self._pending:
            raise ValueError(f"{self.peer}: {len(self._pending)} requests are pending")
        if self.throttle_remaining_s:
            self._runtime.sleep(self.throttle_remaining_s)
        try:
            sent = self.send(api, body, version=version, timeout_s=timeout_s)
            while sent.response is None:
                self.receive(timeout_s)
        except BaseException:
            self.close()  # after any error, because the next response would belong to this request
            raise
        return sent.response

    def send(
        self, api: Api, body: dict[str, Any], *, version: int, timeout_s: float, expects_response: bool = True
    ) -> PendingRequest:
        """Send a request; ``receive`` returns the response.

        Re-authenticates before the broker ends the session (KIP-368) if no response is pending.

        :param version: version of the request, as returned by the method ``version``.
        :param expects_response: False if the broker sends no response.
        :raise ConnectionLost: the request could not be sent.
        """
        if self.closed:
            raise ConnectionLost(f"{self.peer}: the connection is closed")
        if self._renew_at_s is not None and not self._pending and self._runtime.clock() >= self._renew_at_s:
            self._renew_session(timeout_s)
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_ID_END
        sent = PendingRequest(api, version, self._correlation_id, self._runtime.clock() + timeout_s)
        header = build_request_header(
            api.request_header_version(version), api.key, version, sent.correlation_id, self._options.client_id
        )
        content = api.request.build(version, body)
        length = (len(header) + len(content)).to_bytes(4, "big")
        try:
            self.socket.settimeout(timeout_s)
            self.socket.sendall(b"".join((length, header, content)))
        except OSError as error:
            raise self._connection_lost(reason_of(error)) from error
        if expects_response:
            self._pending.append(sent)
        return sent

    def _renew_session(self, timeout_s: float) -> None:
        self._renew_at_s = None
        credentials = self._runtime.sasl
        assert credentials is not None
        try:
            self.authenticate(credentials, timeout_s)
        except BaseException:
            self.close()
            raise

    def receive(self, timeout_s: float) -> list[PendingRequest]:
        """Wait for responses for at most ``timeout_s``, and return their requests.

        :raise ConnectionLost: the connection was closed.
        :raise RequestTimedOut: the first pending request timed out.
        :raise MalformedResponse: the received bytes are not a response to the first pending request.
        """
        if self.closed:
            raise ConnectionLost(f"{self.peer}: the connection is closed")
        left_s = timeout_s
        if self._pending:
            left_s = min(timeout_s, self._pending[0].deadline_s - self._runtime.clock())
        if not self._runtime.wait_readable([self.socket], left_s):
            self.check_deadline()
            return []
        try:
            answered = [self._match_response(frame) for frame in self._read_frames()]
        except ProtocolError as error:
            self.close()
            raise MalformedResponse(f"{self.peer}: {error}") from error
        if not answered:
            self.check_deadline()
        return answered

    def check_deadline(self) -> None:
        """Close the connection if the first pending request has timed out.

        :raise RequestTimedOut: the request has timed out.
        """
        if self._pending and self._runtime.clock() >= self._pending[0].deadline_s:
            name = self._pending[0].api.name
            self.close()
            raise RequestTimedOut(f"{self.peer}: no response to {name} in time")

    def _read_frames(self) -> list[memoryview]:
        """Receive bytes and return the complete frames; a long frame is received into its own buffer."""
        buffer = self._frames.receive_buffer
        try:
            self.socket.settimeout(self._options.request_timeout_s)
            data = b"" if buffer is not None else self.socket.recv(RECEIVED_SIZE_MAX)
            size = len(data) if buffer is None else self.socket.recv_into(buffer)
        except OSError as error:
            raise self._connection_lost(reason_of(error)) from error
        if not size:
            raise self._connection_lost("closed by the broker")
        if buffer is None:
            return list(self._frames.feed(data))
        frame = self._frames.received(size)
        return [] if frame is None else [frame]

    def _match_response(self, frame: memoryview) -> PendingRequest:
        if not self._pending:
            raise ProtocolError("frame", "response received without a pending request")
        first = self._pending[0]
        api, version = first.api, first.version
        correlation_id, position = parse_response_header(api.response_header_version(version), frame)
        if correlation_id != first.correlation_id:
            raise ProtocolError("frame", f"response {correlation_id} instead of {first.correlation_id}")
        if api is API_VERSIONS:
            first.response = parse_response(self._parsers, api, version, frame, position)
        else:  # saves a function call for each response
            first.response = self._parsers.parse(api.response, version, frame, position)
        throttle_s = first.response.get("throttle_time_ms", 0) / 1000
        if throttle_s > 0:
            self._throttled_until_s = self._runtime.clock() + min(throttle_s, THROTTLE_S_MAX)
        return self._pending.popleft()

    def _connection_lost(self, reason: object) -> ClientError:
        self.close()
        return ConnectionLost(f"{self.peer}: {reason}")

    def close(self) -> None:
        """Close the connection; may be called repeatedly."""
        self.closed = True
        self._pending.clear()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
