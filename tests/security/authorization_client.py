"""Client for the authorization matrix: one connection per request, and answers without irrelevant parts."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kreplica.wire.messages.api import Api

TIMEOUT_S = 30
CLOSED, NOTHING = "closed", "no response"
PASSWORD = "planted-secret"

IGNORED_FIELDS = frozenset({"throttle_time_ms", "error_message", "host", "port", "documentation", "api_keys"})
"""Fields that are not compared: messages, addresses, and lists that other tests compare."""

VARIABLE_FIELDS = frozenset([
    "base_offset", "client_host", "client_id", "cluster_id", "configs", "controller_id", "end_offset",
    "endpoint_type", "finalized_features", "finalized_features_epoch", "generation_id", "heartbeat_interval_ms",
    "high_watermark", "last_stable_offset", "leader", "leader_epoch", "leader_id", "log_append_time_ms",
    "log_dir", "log_start_offset", "low_watermark", "member_id", "node_id", "offset", "old_style_offsets",
    "partition_size", "producer_epoch", "producer_id", "producer_id_start", "protocol_data", "session_id",
    "supported_features", "timestamp", "token_id", "issue_timestamp", "issue_timestamp_ms", "expiry_timestamp",
    "expiry_timestamp_ms", "max_timestamp", "max_timestamp_ms",
    "topic_id", "total_bytes", "transaction_start_time_ms", "usable_bytes",
    "zk_migration_ready",
])  # fmt: skip
"""Fields that differ between two runs; only the presence of a value is compared."""

NO_VALUE: tuple[Any, ...] = (None, -1, "", b"", UUID(int=0), [])


class Connection:
    """A blocking connection that does not check versions."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._sent = 0

    def send(self, api: Api, version: int, body: dict[str, Any]) -> None:
        """Send a request."""
        self.send_header(api.key, version, api.request_header_version(version), api.request.build(version, body))

    def send_header(self, key: int, version: int, header_version: int, body: bytes = b"") -> None:
        """Send a request of any API."""
        self._sent += 1
        frame = build_request_header(header_version, key, version, self._sent, "client") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, api: Api, version: int) -> dict[str, Any] | None:
        """Return the response to the last request; None if the connection was closed instead."""
        frame = self._read_frame()
        if frame is None:
            return None
        correlation_id, position = parse_response_header(api.response_header_version(version), frame)
        return api.response.parse(version, frame, position) if correlation_id == self._sent else None

    def request(self, api: Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its response."""
        self.send(api, version, body)
        response = self.receive(api, version)
        assert response is not None, f"{api.name} {version}: the connection was closed"
        return response

    def authenticate(self, user: str, password: str = PASSWORD) -> int:
        """Authenticate with PLAIN; return the error code."""
        self.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        response = self.request(SASL_AUTHENTICATE, 1, {"auth_bytes": f"\0{user}\0{password}".encode()})
        return int(response["error_code"])

    def is_silent(self) -> bool:
        """Return True if the last request has no response: the next response is that to a new request."""
        self.send(API_VERSIONS, 0, {})
        return self.receive(API_VERSIONS, 0) is not None

    def close(self) -> None:
        self._socket.close()

    def _read_frame(self) -> bytes | None:
        head = self._read_exactly(4)
        if head is None:
            return None
        (size,) = struct.unpack(">i", head)
        return self._read_exactly(size) if 0 < size < 10_000_000 else None

    def _read_exactly(self, count: int) -> bytes | None:
        data = b""
        try:
            while len(data) < count:
                piece = self._socket.recv(count - len(data))
                if not piece:
                    return None
                data += piece
        except ConnectionResetError:
            return None
        return data


def normalize(value: Any, name: str = "", only_shared: bool = False) -> Any:
    """Return an answer without the parts that differ between runs.

    :param only_shared: True to remove rows whose name has a hyphen.
    """
    if isinstance(value, bytes | memoryview):
        return "some" if len(value) else "none"
    if name in VARIABLE_FIELDS:
        return "none" if any(value == each and type(value) is type(each) for each in NO_VALUE) else "some"
    if isinstance(value, dict):
        return {key: normalize(each, key, only_shared) for key, each in value.items() if key not in IGNORED_FIELDS}
    if isinstance(value, Sequence) and not isinstance(value, str):
        rows = [normalize(each, "", only_shared) for each in value if not (only_shared and _is_of_one_case(each))]
        return sorted(rows, key=lambda each: json.dumps(each, sort_keys=True))
    return value


def _is_of_one_case(row: Any) -> bool:
    names = [row.get(key) for key in ("name", "group_id", "transactional_id")] if isinstance(row, dict) else []
    return any(isinstance(name, str) and "-" in name for name in names)
