"""A few requests on a plain blocking socket, for measurements that must not include a client library's startup."""

from __future__ import annotations

import socket
import struct
import time

from crc32c import crc32c

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
CLIENT_ID = b"raw"


def record_batch(value: bytes, now_ms: int) -> bytes:
    """A record batch (magic 2, KIP-98) of one record without a key."""
    record = b"\0\0\0\1" + _zigzag(len(value)) + value + b"\0"
    body = _zigzag(len(record)) + record
    after_crc = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + body
    return struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, crc32c(after_crc)) + after_crc


def _zigzag(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class RawClient:
    """One connection with one request at a time.

    :raise OSError: no process listens on the port.
    """

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def request(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one request (header version 1) and return the response body.

        :raise ConnectionError: the broker closed the connection.
        """
        header = struct.pack(">hhih", api_key, version, 0, len(CLIENT_ID)) + CLIENT_ID
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    def request_topic(self, topic: bytes) -> None:
        """Send Metadata version 4 for one topic, which makes the broker create it; the response is ignored."""
        self.request(METADATA, 4, struct.pack(">ih", 1, len(topic)) + topic + b"\1")

    def broker_count(self) -> int:
        """Return the number of brokers in the broker's metadata (Metadata version 4 without topics)."""
        response = self.request(METADATA, 4, struct.pack(">i", 0) + b"\0")
        count: int = struct.unpack_from(">i", response, 4)[0]
        return count

    def request_versions(self) -> None:
        """Send ApiVersions version 0."""
        self.request(API_VERSIONS, 0, b"")

    def produce(self, topic: bytes, value: bytes) -> int:
        """Produce one record to partition 0 with version 7 and acks=1; return the error code."""
        batch = record_batch(value, time.time_ns() // 1_000_000)
        body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(topic)) + topic
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        response = self.request(PRODUCE, 7, body)
        error_code: int = struct.unpack_from(">h", response, 4 + 2 + len(topic) + 4 + 4)[0]
        return error_code
