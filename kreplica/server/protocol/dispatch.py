"""Dispatches frames to the handlers in a table; ApiVersions advertises the same table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger

from kreplica.errors import ErrorCode, LargeMessage, ProtocolError
from kreplica.runtime.slices import Steps
from kreplica.server.handlers.cluster.api_versions import ApiVersions
from kreplica.server.produce.batching import ProduceRuns
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.handler_table import HandlerEntry, HandlerTable
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.request import COPIED_BYTES_MAX, Request, Route
from kreplica.server.protocol.responses import run_handler
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.wire.headers import RequestHeader, parse_request_header
from kreplica.wire.message_parsers import MessageParsers
from kreplica.wire.messages import API_VERSIONS, APIS, LEADER_AND_ISR, PRODUCE, STOP_REPLICA, UPDATE_METADATA
from kreplica.wire.primitives import COST_BYTES, COST_MAX, Buffer

log = Logger()

_EXEMPT_FROM_API_LIMITS = frozenset({PRODUCE.key, LEADER_AND_ISR.key, STOP_REPLICA.key, UPDATE_METADATA.key})
"""APIs whose requests are limited only by ``socket.request.max.bytes`` and ``COST_MAX``."""


class Dispatch:
    """Parses requests and calls their handlers, for all listeners of a broker.

    An invalid frame closes its own connection with one log line, and has no other effect.

    :param table: handlers by API key; ApiVersions is added.
    :param seconds: clock of the reactor.
    :param flush_scope: the scope that is open whenever ``frame_received`` is called.
    :param bounds: limits of one request.
    :param advertised: the APIs that ApiVersions lists, if they differ from the table.
    """

    def __init__(
        self,
        table: Mapping[int, HandlerEntry],
        metrics: ServerMetrics,
        seconds: Callable[[], float],
        flush_scope: FlushScope,
        bounds: Bounds | None = None,
        advertised: HandlerTable | None = None,
    ) -> None:
        self.metrics = metrics
        self.table: HandlerTable = dict(table)
        listed = self.table if advertised is None else advertised
        self.table[API_VERSIONS.key] = HandlerEntry.of(API_VERSIONS, ApiVersions(listed))
        self._seconds = seconds
        bounds = bounds or Bounds()
        self._bytes_max_without_records = bounds.request_bytes_max_without_records
        self._cost_max = bounds.parsed_bytes_max // COST_BYTES
        self._routes: dict[tuple[int, int], Route] = {}
        self._parsers = MessageParsers()
        self._runs: ProduceRuns | None = None
        produce = self.table.get(PRODUCE.key)
        if produce is not None and produce.handle_run is not None:
            self._runs = ProduceRuns(produce.handle_run, self._routes, flush_scope, seconds)

    def frame_received(self, connection: Connection, frame: memoryview) -> None:
        """Handle one frame; returns when its handler returns, perhaps before the response is sent.

        :param frame: without its length prefix; not accessed after the end of the flush scope, unless
            ``Connection.keeps_frame`` is set.
        """
        runs = self._runs
        if runs is not None and runs.add(connection, frame):
            return
        if connection.held:
            # The run that was just handled waits for validation.
            copy = memoryview(bytearray(frame))
            connection.postpone(lambda: self.frame_received(connection, copy))
            return
        try:
            header = parse_request_header(frame)
        except ProtocolError as error:
            self._abort_malformed(connection, "a request", None, error)
            return
        route = self._routes.get(header[:2])
        if route is None:
            route = self._route(connection, header, frame)
            if route is None:
                return
        metrics = route.metrics
        size = len(frame)
        metrics.requests += 1
        metrics.bytes_in += size
        if size >= route.large_bytes:
            self._receive_large(connection, route, header, frame)
            return
        try:
            body = route.parse(frame, header.body_offset)
        except LargeMessage:
            self._receive_large(connection, route, header, frame)
            return
        except ProtocolError as error:
            metrics.errors += 1
            self._abort_malformed(connection, route.api.name, header.client_id, error)
            return
        if runs is not None and route.api is PRODUCE:
            runs.learn(frame, header, body)
        request = Request(connection, route, header[2], header[3], body, size, self._seconds())
        connection.begin(request)
        try:
            route.handle(request)
        except Exception:
            self._failed(request)

    def extend_run(self, connection: Connection, frame: memoryview, view: memoryview, position: int, end: int) -> int:
        """Add frames to the open run of Produce requests; see ``ProduceRuns.extend``."""
        return position if self._runs is None else self._runs.extend(connection, frame, view, position, end)

    def replace_handlers(self, table: Mapping[int, HandlerEntry]) -> None:
        """Replace the handlers for later requests; the APIs and versions must stay the same.

        Both tables must handle runs of Produce requests, or neither.
        """
        self.table.update(table)
        for (key, version), route in list(self._routes.items()):
            entry = self.table[key]
            self._routes[key, version] = Route(entry.api, version, entry.handle, route.metrics, route.parse)
        produce = self.table.get(PRODUCE.key)
        if self._runs is not None and produce is not None and produce.handle_run is not None:
            self._runs.replace_handler(produce.handle_run)

    def handle_open_run(self) -> None:
        """Handle the collected Produce requests; called before their connection is closed or buffers are reused."""
        if self._runs is not None:
            self._runs.handle_open_run()

    # --- rare cases --------------------------------------------------------------------------------------------------

    def description(self, connection: Connection, frame: memoryview) -> str:
        """Describe a request for the log: its API and version, size, client ID and peer."""
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        name = APIS[key].name if key in APIS else f"API {key}"
        client_id = _probable_client_id(frame)
        return f"{name} v{version} ({len(frame)} bytes) from client {client_id!r} at {connection.peer}"

    def reason_too_large(self, frame: Buffer, size: int) -> str | None:
        """Return why a frame is too large for its API; None if it is not.

        :param frame: at least the first two bytes.
        :param size: of the whole frame.
        """
        size_max = self._bytes_max_without_records
        key = int.from_bytes(frame[:2], "big")
        if size <= size_max or key in _EXEMPT_FROM_API_LIMITS:
            return None
        name = APIS[key].name if key in APIS else f"API {key}"
        limit = f"{size_max} (kreplica.request.without.records.max.bytes)"
        return f"a {name} request of {size} bytes is larger than the limit of {limit}"

    def _receive_large(self, connection: Connection, route: Route, header: RequestHeader, frame: memoryview) -> None:
        """Parse a frame in slices, then handle it; its connection is not read meanwhile."""
        reason = self.reason_too_large(frame, len(frame))
        if reason is not None:
            route.metrics.errors += 1
            connection.abort(reason)
            return
        if len(frame) <= COPIED_BYTES_MAX:
            frame = memoryview(bytes(frame))
        else:
            connection.keeps_frame = True
        request = Request(connection, route, header[2], header[3], {}, len(frame), self._seconds())
        connection.begin(request)
        if route.api is PRODUCE:
            request.build_in_slices()
        cost_max = COST_MAX if route.api.key in _EXEMPT_FROM_API_LIMITS else self._cost_max
        steps = route.api.request.sliced_parser(route.version, cost_max)(frame, header.body_offset)
        run_handler(request, self._parse_and_handle(request, route, steps))

    async def _parse_and_handle(self, request: Request, route: Route, steps: Steps[dict[str, Any]]) -> None:
        connection = request.connection
        connection.suspend()
        has_views = False
        try:
            request.body = await request.in_slices(steps)
            has_views = route.api is PRODUCE  # views of records: Produce releases the frame after it has appended them
        except ProtocolError as error:
            route.metrics.errors += 1
            self._abort_malformed(connection, route.api.name, request.client_id, error)
            return
        finally:
            if not has_views:
                connection.release_frame()
            connection.resume()
        try:
            route.handle(request)
        except Exception:
            self._failed(request)
        if not request.is_waiting:
            connection.release_frame()

    def _failed(self, request: Request) -> None:
        log.failure("{request!r} from client {client!r} failed", request=request, client=request.client_id)
        request.abort(f"{request.api.name} failed")

    def _route(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Route | None:
        entry = self.table.get(header.api_key)
        version = header.api_version
        if entry is not None and entry.versions_min <= version <= entry.versions_max:
            parse = self._parsers.parser(entry.api.request, version)
            route = Route(entry.api, version, entry.handle, self.metrics.api(header.api_key), parse)
            self._routes[header.api_key, version] = route
            return route
        if header.api_key == API_VERSIONS.key:
            self._reject_version(connection, header, len(frame))
        else:
            self._reject(connection, header, frame)
        return None

    def _reject_version(self, connection: Connection, header: RequestHeader, size: int) -> None:
        """Respond with the supported versions of ApiVersions, in the layout of version 0 (KIP-511).

        The body is not parsed, since its layout is unknown.
        """
        entry = self.table[API_VERSIONS.key]
        parse = self._parsers.parser(API_VERSIONS.request, 0)
        route = Route(API_VERSIONS, 0, entry.handle, self.metrics.api(API_VERSIONS.key), parse)
        route.metrics.requests += 1
        route.metrics.bytes_in += size
        request = Request(connection, route, header.correlation_id, None, {}, size, self._seconds())
        connection.begin(request)
        versions = {
            "api_key": API_VERSIONS.key,
            "min_version": entry.versions_min,
            "max_version": entry.versions_max,
        }
        request.respond({"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "api_keys": [versions]})

    def _reject(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        api = APIS.get(header.api_key)
        name = f"API {header.api_key}" if api is None else api.name
        if header.api_key in self.table:
            self.metrics.api(header.api_key).errors += 1
        client_id = _probable_client_id(frame) if header.client_id is None else header.client_id
        connection.abort(f"{name} version {header.api_version} from client {client_id!r} is not supported")

    def _abort_malformed(
        self, connection: Connection, subject: str, client_id: str | None, error: ProtocolError
    ) -> None:
        client = "" if client_id is None else f" from client {client_id!r}"
        connection.abort(f"{subject}{client} is malformed: {error}")


def _probable_client_id(frame: memoryview) -> str | None:
    """Return the client ID, which all header versions have at the same position; None if the frame is too short."""
    length = int.from_bytes(frame[8:10], "big", signed=True)
    return str(frame[10 : 10 + length], "utf-8", "replace") if 0 <= length <= len(frame) - 10 else None
