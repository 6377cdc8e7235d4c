"""Blocking client that sends one request at a time on a plain socket, for tests and benchmarks without a reactor."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import Api


class BlockingClient:
    """One connection; use it as a context manager, or ``close`` it.

    :raise OSError: from any method, if the broker cannot be reached or does not respond in time.
    """

    def __init__(self, host: str, port: int, *, client_id: str = "blocking", timeout_s: float = 5.0) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, api: Api, body: dict[str, Any], *, version: int | None = None) -> dict[str, Any]:
        """Send one request and return the response.

        :param version: by default the highest version that this library implements; nothing is negotiated.
        :raise ProtocolError: the body does not match the schema, or the response cannot be decoded.
        """
        chosen = api.versions[1] if version is None else version
        self._correlation_id += 1
        header_version = api.request_header_version(chosen)
        header = build_request_header(header_version, api.key, chosen, self._correlation_id, self._client_id)
        content = b"".join([bytes(header), api.request.build(chosen, body)])
        self._socket.sendall(struct.pack(">i", len(content)) + content)
        (size,) = struct.unpack(">i", self._read(4))
        frame = memoryview(self._read(size))
        _, position = parse_response_header(api.response_header_version(chosen), frame)
        return api.response.parse(chosen, frame, position)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)
