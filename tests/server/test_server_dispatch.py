"""Dispatching of requests without sockets: ApiVersions, response order, and handling of invalid requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server_scene import Handlers, parse_answer, produce_frame, produced, request_frame
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from kreplica.errors import ErrorCode
from kreplica.server.protocol.client_names import CLIENT_NAME_LENGTH_MAX, NO_NAMES, ClientNames
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.request import Request
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.outgoing_buffers import Piece
from kreplica.wire.framing import FrameReader
from kreplica.wire.messages import API_VERSIONS, FETCH, PRODUCE


class MemoryTransport:
    """Transport that accepts all output, or none while it is ``full``."""

    def __init__(self) -> None:
        self.sends: list[bytes] = []
        self.state = "open"
        self.is_reading = True
        self.full = False

    def send(self, pieces: list[Piece]) -> int:
        data = b"".join(pieces)  # type: ignore[arg-type]  # no files here
        self.sends.append(data)
        return 0 if self.full else len(data)

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self.sends)) if self.full else 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"

    def mark_control(self) -> None:
        self.state = "control"

    def release_frame(self) -> None:
        self.state = "frame released"

    def frames(self) -> list[memoryview]:
        return list(FrameReader().feed(b"".join(self.sends)))


class Sends(list[bytes]):
    """Data sent on one connection; records the connection's name in the order of all sends."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__()
        self._name = name
        self._order = order

    def append(self, data: bytes) -> None:
        self._order.append(self._name)
        super().append(data)


class Bench:
    """One connection to a dispatcher, with a transport and a clock that the test controls."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.now_s = 100.0
        self.handlers = Handlers()
        self.metrics = ServerMetrics()
        self.clock = Clock()
        self.flush_scope = FlushScope(self.clock)
        self.dispatch = Dispatch(self.handlers.table(), self.metrics, self.seconds, self.flush_scope)
        self.transport = MemoryTransport()
        bounds = bounds or Bounds()
        self.connection = Connection("PLAINTEXT", "1.2.3.4:5", bounds, self.flush_scope, self.metrics, self.seconds)
        self.connection.attach(self.transport)

    def seconds(self) -> float:
        return self.now_s

    def receive(self, *frames: bytes) -> None:
        with self.flush_scope:
            for frame in frames:
                self.dispatch.frame_received(self.connection, memoryview(frame)[4:])

    def ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.transport.frames()]


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    globalLogPublisher.addObserver(events.append)  # type: ignore[arg-type]
    yield events
    globalLogPublisher.removeObserver(events.append)  # type: ignore[arg-type]


SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.16.0-a"}


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_the_dispatch_table(version: int) -> None:
    """ApiVersions advertises the dispatched versions of each API, in every version of its own."""
    bench = Bench()
    bench.receive(request_frame(API_VERSIONS, version, 5, SOFTWARE))
    correlation_id, body = parse_answer(bench.transport.frames()[0], API_VERSIONS.key, version)
    assert correlation_id == 5
    assert body["error_code"] == 0
    assert [(row["api_key"], row["min_version"], row["max_version"]) for row in body["api_keys"]] == [
        (0, 3, 9),
        (1, *FETCH.versions),
        (18, 0, 4),
    ]


def test_future_version_of_api_versions_is_answered_in_version_0() -> None:
    """A client newer than the broker learns the supported versions (KIP-511)."""
    bench = Bench()
    bench.receive(b"\0\0\0\x0e" + b"\0\x12\0\x09" + b"\0\0\0\x07" + b"\xff\xfe\xfd\xfc\xfb\xfa")
    correlation_id, body = parse_answer(bench.transport.frames()[0], API_VERSIONS.key, 0)
    assert correlation_id == 7
    assert body == {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    assert bench.transport.state == "open"


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a", "1-"), ("a\n", "1"), ("ä", "1")]
)
def test_api_versions_refuses_software_names_with_other_characters(name: str, version: str) -> None:
    """Software names and versions consist of letters, digits, dashes and dots, because they appear in metrics
    (KIP-511)."""
    bench = Bench()
    bench.receive(request_frame(API_VERSIONS, 3, 1, {"client_software_name": name, "client_software_version": version}))
    _, body = parse_answer(bench.transport.frames()[0], API_VERSIONS.key, 3)
    assert body["error_code"] == ErrorCode.INVALID_REQUEST
    assert body["api_keys"] == []


def test_names_of_a_client_are_cut() -> None:
    """A connection keeps its client's names only up to a maximum length, because a client can send 32 kB."""
    bench = Bench()
    assert bench.connection.names == NO_NAMES
    body = {"client_software_name": "a" * 1000, "client_software_version": "1.2"}
    bench.receive(request_frame(API_VERSIONS, 3, 1, body, "c" * 1000))
    cut = CLIENT_NAME_LENGTH_MAX
    assert bench.connection.names == ClientNames("c" * cut, "a" * cut, "1.2")
    bench.receive(request_frame(API_VERSIONS, 0, 2, {}, None))
    assert bench.connection.names == ClientNames(None)


def test_responses_of_one_flush_scope_leave_in_one_send() -> None:
    """Responses outside a flush scope are sent at once."""
    bench = Bench()
    bench.receive(*(produce_frame(number, b"x") for number in range(5)), produce_frame(9, b"x", acks=-1))
    assert len(bench.transport.sends) == 1
    assert bench.ids() == [0, 1, 2, 3, 4]
    bench.handlers.release()
    assert len(bench.transport.sends) == 2
    assert bench.ids() == [0, 1, 2, 3, 4, 9]


def test_each_connection_is_flushed_once_at_the_end_of_the_outermost_scope() -> None:
    bench = Bench()
    bench.receive(*(produce_frame(number, b"x", acks=-1) for number in range(3)))
    with bench.flush_scope:
        with bench.flush_scope:
            bench.handlers.release()
        bench.handlers.release()
        assert bench.transport.sends == []
        bench.handlers.release()
    assert len(bench.transport.sends) == 1
    assert bench.ids() == [0, 1, 2]


def test_requests_woken_within_a_flush_scope_are_answered_with_it() -> None:
    """Waiting requests are re-evaluated once, at the end of the scope, and answered in the same send."""
    bench = Bench()
    looks: list[int] = []

    def wake() -> None:
        looks.append(len(bench.handlers.parked))
        while bench.handlers.parked:
            bench.handlers.release()

    with bench.flush_scope:
        bench.flush_scope.at_end(wake)
        bench.receive(*(produce_frame(number, b"x", acks=-1) for number in range(3)))
    assert looks == [3]
    assert len(bench.transport.sends) == 1
    assert bench.ids() == [0, 1, 2]
    assert not bench.clock.getDelayedCalls()


def test_woken_requests_are_answered_before_those_of_the_same_read() -> None:
    """A waiting consumer receives new records before the producer receives the acknowledgement."""
    bench = Bench()
    order: list[str] = []
    waiting = Connection("PLAINTEXT", "1.2.3.4:6", Bounds(), bench.flush_scope, bench.metrics, bench.seconds)
    for connection, name in ((bench.connection, "of this read"), (waiting, "woken")):
        transport = MemoryTransport()
        transport.sends = Sends(name, order)
        connection.attach(transport)
    with bench.flush_scope:
        bench.dispatch.frame_received(waiting, memoryview(produce_frame(1, b"x", acks=-1))[4:])
    bench.flush_scope.at_end(bench.handlers.release)
    bench.receive(produce_frame(2, b"x"))
    assert order == ["woken", "of this read"]


def test_wake_up_outside_of_a_flush_scope_is_deferred() -> None:
    """The wake-up runs soon, but not before its caller has returned."""
    bench = Bench()
    bench.receive(*(produce_frame(number, b"x", acks=-1) for number in range(3)))
    sends: list[int] = []

    def first() -> None:
        bench.flush_scope.at_end(lambda: sends.append(len(bench.transport.sends)))
        bench.handlers.release()
        bench.handlers.release()
        raise LookupError("a callback that fails")

    bench.flush_scope.at_end(first)
    assert bench.transport.sends == []
    bench.clock.advance(0)
    assert bench.ids() == [0, 1]
    assert sends == [1], "the second runs in the next flush scope, after the responses of the first are sent"


def test_second_response_to_a_request_is_an_error() -> None:
    """The handler gets an exception, and the client receives only one response."""
    bench = Bench()
    bench.receive(produce_frame(1, b"x", acks=-1))
    request = bench.handlers.parked[0]
    request.respond(produced(1))
    for again in (lambda: request.respond(produced(1)), request.complete_without_response):
        with pytest.raises(RuntimeError, match="Produce 7 #1, responded>: it already has a response"):
            again()
    assert bench.ids() == [1]


def test_response_that_cannot_be_built_closes_the_connection(lines: list[dict[str, Any]]) -> None:
    """The invalid field is logged."""
    bench = Bench()
    bench.receive(produce_frame(1, b"x", acks=-1), produce_frame(2, b"waits", acks=-1))
    bench.handlers.parked[0].respond(produced(2**64))
    assert bench.transport.state == "closed"
    assert bench.handlers.abandoned == [1, 2]
    assert ["base_offset" in str(line["log_failure"].value) for line in lines if "log_failure" in line] == [True]


def test_failing_handler_closes_the_connection_after_earlier_responses(lines: list[dict[str, Any]]) -> None:
    """Requests after the failed one are not parsed."""
    bench = Bench()
    bench.receive(produce_frame(1, b"x"), produce_frame(2, b"waits", acks=-1), produce_frame(3, b"boom"))
    assert bench.ids() == [1]
    assert bench.transport.state == "closed"
    assert bench.handlers.abandoned == [2]
    assert bench.metrics.api(0).errors == 1
    assert [line["log_failure"].type for line in lines if "log_failure" in line] == [LookupError]


def test_close_callback_registered_after_the_close_runs_at_once() -> None:
    bench = Bench()
    bench.receive(produce_frame(1, b"waits", acks=-1))
    request = bench.handlers.parked[0]
    bench.connection.lost()
    calls: list[str] = []
    request.on_abandoned(lambda: calls.append("abandoned"))
    assert calls == ["abandoned"]
    assert not request.is_waiting


def test_failing_close_callback_does_not_prevent_the_others(lines: list[dict[str, Any]]) -> None:
    bench = Bench()
    bench.receive(produce_frame(1, b"waits", acks=-1), produce_frame(2, b"waits", acks=-1))
    calls: list[int] = []
    bench.handlers.parked[0].on_abandoned(lambda: 1 // 0)
    bench.handlers.parked[1].on_abandoned(lambda: calls.append(2))
    bench.connection.lost()
    assert calls == [2]
    assert [line["log_failure"].type for line in lines if "log_failure" in line] == [ZeroDivisionError]


def test_responses_behind_a_pending_one_count_as_unsent() -> None:
    """The connection is no longer read, so that a client cannot accumulate responses after a pending request."""
    bench = Bench(Bounds(response_bytes_outstanding_max=1000))
    bench.receive(produce_frame(1, b"waits", acks=-1))
    for number in range(2, 40):
        if bench.transport.is_reading:
            bench.receive(produce_frame(number, b"x"))
    received = bench.handlers.received
    assert not bench.transport.is_reading
    assert 5 < len(received) < 39
    bench.handlers.release()
    assert bench.ids() == received
    assert bench.transport.is_reading


def test_reading_resumes_below_half_of_the_limit() -> None:
    """A slow reader's connection does not switch between paused and reading with every byte that is read."""
    bench = Bench(Bounds(response_bytes_outstanding_max=400))
    bench.transport.full = True
    while bench.transport.is_reading:
        bench.receive(produce_frame(1, b"x"))
    unsent = sum(map(len, bench.transport.sends))
    bench.connection.sent(unsent - 201)
    assert not bench.transport.is_reading
    bench.connection.sent(1)
    assert bench.transport.is_reading


def test_counters_and_times() -> None:
    """Requests, bytes and latencies are recorded by API."""
    bench = Bench()
    frame = produce_frame(1, b"x", acks=-1)
    bench.receive(frame)
    bench.now_s += 2.5
    bench.handlers.release()
    counted = bench.metrics.api(PRODUCE.key)
    assert (counted.requests, counted.errors, counted.bytes_in) == (1, 0, len(frame) - 4)
    assert counted.bytes_out == len(bench.transport.sends[0])
    assert counted.response_time_s == pytest.approx(2.5)


def test_abort_by_a_handler_logs_the_reason(lines: list[dict[str, Any]]) -> None:
    """A failed Produce with acks=0 closes the connection, to notify the client."""
    bench = Bench()
    bench.receive(produce_frame(1, b"waits", acks=-1))
    request: Request = bench.handlers.parked[0]
    request.abort("produce with acks=0 failed")
    assert bench.transport.state == "closed"
    assert [line["reason"] for line in lines if "reason" in line] == ["produce with acks=0 failed"]
    request.respond(produced(1))
    assert bench.transport.sends == []


def test_refused_requests_are_logged_with_their_client(lines: list[dict[str, Any]]) -> None:
    """One line names the client and the request, whether or not the API is known."""
    bench = Bench()
    bench.receive(b"\0\0\0\x0e\x03\xe7\0\x02\0\0\0\x07\0\4kcat")
    reasons = [line["reason"] for line in lines if "reason" in line]
    assert reasons == ["API 999 version 2 from client 'kcat' is not supported"]
