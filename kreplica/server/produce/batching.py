"""Groups Produce requests from one read that match the same template.

A producer with many small batches sends them back to back.  A run of such requests is appended with one system call,
and all responses share one buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger

from kreplica.runtime.disk import Buffer
from kreplica.server.produce.delayed_produce import ALL_IN_SYNC, LEADER_ONLY
from kreplica.server.produce.request_templates import ProduceTemplate, ProduceTemplates
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.request import Amend, Request, Route
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.wire import kernels
from kreplica.wire.framing import LENGTH_SIZE
from kreplica.wire.headers import RequestHeader
from kreplica.wire.messages import PRODUCE

log = Logger()

_PRODUCE_KEY = PRODUCE.key.to_bytes(2, "big")

RUN_MAX = 64
"""Maximum number of requests per run, so that one connection cannot starve the others."""


class ProduceRun:
    """Consecutive requests of one connection; valid until the handler returns.

    :ivar template: the fields that the requests have in common, without the partition.
    :ivar partition: number of the partition.
    :ivar correlation_ids: one per request.
    :ivar records: records of each request, as a view of a reused buffer.
    :ivar last_frame: the frame that ``ProduceRuns.add`` added last.
    :ivar codecs: bitwise OR of the codecs of all batches; 0 if no batch is compressed.
    """

    __slots__ = (
        "_amend",
        "_received_s",
        "_route",
        "codecs",
        "connection",
        "correlation_ids",
        "last_frame",
        "metrics",
        "partition",
        "records",
        "template",
    )

    def __init__(
        self, connection: Connection, route: Route, template: ProduceTemplate, partition: int, received_s: float
    ) -> None:
        self.connection = connection
        self.template = template
        self.partition = partition
        self.correlation_ids: list[int] = []
        self.records: list[Buffer] = []
        self.last_frame: memoryview | None = None
        self.codecs = 0
        self.metrics = route.metrics
        self._route = route
        self._received_s = received_s
        self._amend: Amend | None = None

    def amend_responses(self, amend: Amend) -> None:
        """Amend the body of each response, after earlier amendments; must be called before the run is handled."""
        before = self._amend
        self._amend = amend if before is None else lambda body: amend(before(body))

    @property
    def can_respond_at_once(self) -> bool:
        """True if no earlier response is pending on this connection, and the responses are not amended."""
        return not self.connection.outstanding and self._amend is None

    def respond(self, frames: bytes) -> None:
        """Send the responses of all requests; only valid if ``can_respond_at_once``."""
        connection = self.connection
        metrics = self.metrics
        metrics.bytes_out += len(frames)
        metrics.count_response(connection.seconds() - self._received_s, len(self.records))
        connection.send_at_once(frames)

    def requests(self) -> list[Request]:
        """Return one request per batch; each takes its place in the response order of the connection."""
        connection, template = self.connection, self.template
        requests = []
        for correlation_id, records in zip(self.correlation_ids, self.records, strict=True):
            request = Request(
                connection, self._route, correlation_id, template.client_id, {}, len(records), self._received_s
            )
            if self._amend is not None:
                request.amend_response(self._amend)
            connection.begin(request)
            requests.append(request)
        return requests

    def abort(self, reason: str) -> None:
        """Close the connection.

        :param reason: for the log.
        """
        self.metrics.errors += 1
        self.connection.abort(reason)


RunHandler = Callable[[ProduceRun], None]


class ProduceRuns:
    """Collects runs for one dispatcher; at most one run is open.

    A run is handled at the end of the flush scope, before the responses are sent, or before the next frame that is not
    part of it.

    :param routes: routes of the dispatcher by API key and version; a template implies that its route exists.
    """

    def __init__(
        self,
        handle: RunHandler,
        routes: Mapping[tuple[int, int], Route],
        flush_scope: FlushScope,
        seconds: Callable[[], float],
    ) -> None:
        self._handle = handle
        self._routes = routes
        self._flush_scope = flush_scope
        self._seconds = seconds
        self._templates = ProduceTemplates()
        self._run: ProduceRun | None = None

    def add(self, connection: Connection, frame: memoryview) -> bool:
        """Add a frame to the run.

        :param frame: must not change until the flush scope ends.
        :return: false if the frame is not part of a run; the open run, if any, has then been handled.
        """
        run = self._run
        match = self._templates.find(frame) if frame[:2] == _PRODUCE_KEY else None
        if match is None:
            if run is not None:
                self.handle_open_run()
            return False
        correlation_id, template, partition, records, codec = match
        if (
            run is None
            or run.template is not template
            or run.partition != partition
            or run.connection is not connection
        ):
            if run is not None:
                self.handle_open_run()
            if connection.held or not self._flush_scope.is_open:
                return False
            run = self._run = ProduceRun(
                connection, self._routes[PRODUCE.key, template.version], template, partition, self._seconds()
            )
            self._flush_scope.before_end(self.handle_open_run)
        run.last_frame = frame
        run.correlation_ids.append(correlation_id)
        run.records.append(records)
        run.codecs |= codec
        metrics = run.metrics
        metrics.requests += 1
        metrics.bytes_in += len(frame)
        if len(run.records) == RUN_MAX:
            self.handle_open_run()
        return True

    def extend(self, connection: Connection, frame: memoryview, view: memoryview, position: int, end: int) -> int:
        """If ``frame`` was added, use a kernel to add the next frames that differ from it only in ID and records.

        The result is the same as if ``add`` were called for each of these frames. Nothing is added after a frame that
        did not reach ``add``, for example because the session had expired.

        :param view: buffer with frames, each with a length prefix; must not change until the flush scope ends.
        :param position: end of ``frame``, and position of the next one.
        :param end: end of the frames.
        :return: position of the first frame that was not added.
        """
        run = self._run
        if run is None or run.last_frame is not frame or kernels.match_requests is None:
            return position
        template, count_max = run.template, RUN_MAX - len(run.records)
        correlation_ids, records, codecs, stop = kernels.match_requests(
            view, template.tail, position - len(frame), position, end, connection.frame_bytes_max, template.head_size,
            template.is_compact, template.forbidden_attributes, count_max,
        )  # fmt: skip
        count = len(records)
        if count:
            run.correlation_ids += correlation_ids
            run.records += records
            run.codecs |= codecs
            metrics = run.metrics
            metrics.requests += count
            metrics.bytes_in += stop - position - count * LENGTH_SIZE
            if count == count_max:
                self.handle_open_run()
        return int(stop)

    def learn(self, frame: memoryview, header: RequestHeader, body: dict[str, Any]) -> None:
        """Learn the template of a parsed request of version 3 or later with acks=1 or acks=all."""
        if "transactional_id" in body and body["acks"] in (LEADER_ONLY, ALL_IN_SYNC):
            self._templates.learn(frame, header, body)

    def replace_handler(self, handle: RunHandler) -> None:
        """Set the handler of later runs."""
        self.handle_open_run()
        self._handle = handle

    def handle_open_run(self) -> None:
        """Handle the open run, if there is one."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            self._handle(run)
        except Exception:
            count, client = len(run.records), run.template.client_id
            log.failure("{count} Produce requests of client {client!r} failed", count=count, client=client)
            run.abort("Produce failed")
