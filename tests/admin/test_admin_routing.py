"""Responses from handlers, errors, and limits."""

from __future__ import annotations

import json

import pytest
from http_in_memory import Api, Resource, disconnect, parse_response
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogLevel, capturedLogs

from kreplica.admin.http import routing
from kreplica.admin.http.api import EventStream, JsonResponse, RawResponse, Route, ServerEvent
from kreplica.admin.http.event_streams import HEARTBEAT_SECONDS, SLOW_SECONDS_MAX
from kreplica.admin.http.failures import status_of
from kreplica.admin.http.json_stream import ROWS_AT_ONCE, json_pieces
from kreplica.admin.http.problems import Problem
from kreplica.client.errors import ConnectionFailed
from kreplica.cluster.znodes import ZnodeError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.zookeeper import BadArguments, ConnectionLoss, NotSent, RequestTooLarge, SessionExpired


def api_with_response(reply, method="GET", **more):
    async def handler(call):
        if isinstance(reply, BaseException):
            raise reply
        return reply() if callable(reply) else reply

    return Api(Resource(Route(method, "/it", handler, "It.", **more)))


# --- responses -------------------------------------------------------------------------------------------------------


def test_document():
    """A response is one line of JSON that must not be cached."""
    answer = api_with_response(JsonResponse({"é": [1, None]}, status=201, location="/it/1")).ask("GET", "/it")
    assert (answer.status, answer.body) == (201, '{"é":[1,null]}\n'.encode())
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["location"] == "/it/1"
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize("reply", [JsonResponse({"a": 1}, etag="7.x"), RawResponse(b"a", "text/css", etag="7.x")])
def test_not_modified(reply):
    """A matching If-None-Match gets a 304 without a body."""
    api = api_with_response(reply)
    first = api.ask("GET", "/it")
    assert (first.status, first.headers["etag"]) == (200, '"7.x"')
    for known in ('"7.x"', 'W/"7.x"', '"1", "7.x"', "*"):
        again = api.ask("GET", "/it", {"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", '"7.x"')
    assert api.ask("GET", "/it", {"If-None-Match": '"8.x"'}).status == 200


def test_static_page():
    """A page is served unchanged."""
    answer = api_with_response(RawResponse(b"<p>", "text/html; charset=utf-8")).ask("GET", "/it")
    assert (answer.body, answer.headers["content-type"]) == (b"<p>", "text/html; charset=utf-8")


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_long_documents_are_complete(count):
    """Long documents, which are encoded in parts, equal those encoded at once."""
    document = {"rows": [{"n": number} for number in range(count)], "next": None, "more": list(range(count))}
    answer = api_with_response(JsonResponse(document)).ask("GET", "/it")
    assert answer.body == json.dumps(document, separators=(",", ":")).encode() + b"\n"


def test_long_documents_yield():
    """Encoding a long response yields to the reactor."""

    class Slow:
        now, later = 0.0, []

        def seconds(self):
            self.now += 0.006
            return self.now

        def callLater(self, delay, function, *args):
            self.later.append((function, args))

    reactor = Slow()
    made = Deferred.fromCoroutine(json_pieces(reactor, {"rows": list(range(10 * ROWS_AT_ONCE))}))
    turns = 0
    while not made.called:
        function, args = reactor.later.pop()
        function(*args)
        turns += 1
    assert turns >= 4
    assert json.loads(b"".join(made.result)) == {"rows": list(range(10 * ROWS_AT_ONCE))}


# --- problems --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (Problem(418, "TEAPOT", "short and stout"), 418, "TEAPOT"),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS), 409, "TOPIC_ALREADY_EXISTS"),
        (KafkaError(ErrorCode.INVALID_PARTITIONS, "0"), 400, "INVALID_PARTITIONS"),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), 503, "REQUEST_TIMED_OUT"),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), 500, "UNKNOWN_SERVER_ERROR"),
        (NotSent("/a"), 503, "COORDINATION_UNAVAILABLE"),
        (ConnectionLoss("/a"), 503, "COORDINATION_UNAVAILABLE"),
        (SessionExpired("/a"), 503, "COORDINATION_UNAVAILABLE"),
        (RequestTooLarge(2, 1), 413, "CONTENT_TOO_LARGE"),
        (BadArguments("/a"), 400, "INVALID_REQUEST"),
        (ZnodeError("/a: not JSON"), 500, "UNKNOWN_SERVER_ERROR"),
        (ConnectionFailed("refused"), 503, "BROKER_NOT_AVAILABLE"),
    ],
)
def test_errors_are_problems(error, status, title):
    """An exception raised by a handler becomes a problem document with an appropriate status."""
    answer = api_with_response(error).ask("GET", "/it")
    problem = answer.json()
    assert (answer.status, problem["status"], problem["title"]) == (status, status, title)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["detail"]
    assert ("retry-after" in answer.headers) == (status == 503)


def test_uncertain_writes():
    """The error for a failed write states whether it may have taken effect."""
    assert (
        "check the state before you retry"
        in api_with_response(ConnectionLoss("/a")).ask("GET", "/it").json()["what_to_do"]
    )
    assert api_with_response(NotSent("/a")).ask("GET", "/it").json()["what_to_do"].startswith("Nothing was written.")


def test_every_kafka_error_has_a_status():
    for code in ErrorCode:
        assert 400 <= status_of(code) <= 503


def test_internal_error():
    """An internal error is logged with details, which the response does not contain."""
    with capturedLogs() as logged:
        answer = api_with_response(ZeroDivisionError("secret")).ask("GET", "/it")
    assert (answer.status, b"secret" in answer.body) == (500, False)
    (event,) = [each for each in logged if each["log_level"] is LogLevel.critical]
    assert event["log_failure"].check(ZeroDivisionError)


# --- limits ----------------------------------------------------------------------------------------------------------


class Waiting:
    """A handler that waits until the test fires a Deferred, and records the outcome of each call."""

    def __init__(self, method="GET"):
        self.waits, self.ended = [], []
        self.api = Api(Resource(Route(method, "/it", self.wait, "It.")))

    async def wait(self, call):
        self.waits.append(Deferred())
        try:
            await self.waits[-1]
        except CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return JsonResponse({})


def test_client_disconnects_during_a_read():
    """If a client disconnects, its read is cancelled."""
    waiting = Waiting()
    protocol, _ = waiting.api.begin("GET", "/it")
    disconnect(protocol)
    assert waiting.ended == ["cancelled"]


def test_client_disconnects_during_a_write():
    """If a client disconnects, its write continues."""
    waiting = Waiting("DELETE")
    protocol, _ = waiting.api.begin("DELETE", "/it")
    disconnect(protocol)
    assert waiting.ended == []
    waiting.waits[0].callback(None)
    assert waiting.ended == ["done"]


def test_read_timeout():
    """A read that takes longer than a minute is cancelled, and the response is an error."""
    waiting = Waiting()
    _, wire = waiting.api.begin("GET", "/it")
    waiting.api.clock.advance(routing.CALL_SECONDS_MAX - 1)
    assert not wire.value()
    waiting.api.clock.advance(1)
    answer = parse_response(wire.value())
    assert (answer.status, answer.json()["title"], waiting.ended) == (503, "REQUEST_TIMED_OUT", ["cancelled"])


def test_calls_are_bounded():
    """Calls beyond the limit are refused at once, until a call ends."""
    waiting = Waiting()
    for _ in range(routing.CALLS_MAX):
        waiting.api.begin("GET", "/it")
    refused = waiting.api.ask("GET", "/it")
    assert (refused.status, refused.json()["title"]) == (503, "OVERLOADED")
    waiting.waits[0].callback(None)
    waiting.api.begin("GET", "/it")
    assert len(waiting.waits) == routing.CALLS_MAX + 1


# --- streams ---------------------------------------------------------------------------------------------------------


class Stream:
    """A route that streams the events which the test sends."""

    def __init__(self):
        self.closed = 0
        self.api = Api(Resource(Route("GET", "/it", self.handle, "It.", streams=True)))

    async def handle(self, call):
        return EventStream(self.events())

    async def events(self):
        own = self.next = Deferred()  # belongs to the most recent stream
        try:
            while True:
                event = await own
                own = self.next = Deferred()
                yield event
        finally:
            self.closed += 1

    def send(self, event):
        self.next.callback(event)


@pytest.fixture
def stream():
    made = Stream()
    yield made
    made.api.site.root.stop()


def test_events_are_sent_at_once(stream):
    """Each event is sent at once, with its name, ID and data on one line each."""
    _, wire = stream.api.begin("GET", "/it")
    head = wire.value()
    assert b"content-type: text/event-stream" in head.lower()
    wire.clear()
    stream.send(ServerEvent("timeline", {"é": "a\nb"}, event_id="7"))
    sent = 'event: timeline\nid: 7\ndata: {"é":"a\\nb"}\n\n'.encode()
    assert wire.value() == b"%x\r\n%s\r\n" % (len(sent), sent)
    wire.clear()
    stream.send(ServerEvent("timeline", 1))
    assert b"id:" not in wire.value()


def test_idle_stream_sends_comments(stream):
    """An idle stream sends a comment after fifteen seconds."""
    _, wire = stream.api.begin("GET", "/it")
    wire.clear()
    stream.api.clock.advance(HEARTBEAT_SECONDS - 1)
    stream.send(ServerEvent("a", 1))
    wire.clear()
    stream.api.clock.advance(HEARTBEAT_SECONDS - 1)
    assert not wire.value()
    stream.api.clock.advance(1)
    assert b": still here\n\n" in wire.value()


def test_client_disconnects_from_a_stream(stream):
    """When the client of a stream disconnects, the event source is closed, and no timer remains."""
    protocol, _ = stream.api.begin("GET", "/it")
    disconnect(protocol)
    assert stream.closed == 1
    assert stream.api.clock.getDelayedCalls() == []


def test_slow_client_of_a_stream(stream):
    """A slow client blocks only its stream, and is disconnected after a minute."""
    protocol, wire = stream.api.begin("GET", "/it")
    wire.producer.pauseProducing()
    wire.clear()
    stream.send(ServerEvent("a", 1))
    stream.api.clock.advance(SLOW_SECONDS_MAX / 2)
    assert b"still here" not in wire.value()
    wire.producer.resumeProducing()
    stream.send(ServerEvent("a", 2))
    assert b"data: 2" in wire.value()
    wire.producer.pauseProducing()
    stream.api.clock.advance(SLOW_SECONDS_MAX)
    assert wire.aborted
    disconnect(protocol)
    assert stream.closed == 1


def test_broker_stops_during_a_stream(stream):
    _, wire = stream.api.begin("GET", "/it")
    stream.api.site.root.stop()
    assert stream.closed == 1
    assert wire.value().endswith(b"0\r\n\r\n")


def test_streams_are_bounded(stream):
    """Streams beyond the limit are rejected until one ends."""
    begun = [stream.api.begin("GET", "/it") for _ in range(routing.STREAMS_MAX)]
    assert stream.api.ask("GET", "/it").status == 503
    disconnect(begun[0][0])
    assert b"200 OK" in stream.api.begin("GET", "/it")[1].value()


def test_failure_during_a_stream(stream):
    """If a stream fails after the headers were sent, the error is its last event."""
    _, wire = stream.api.begin("GET", "/it")
    stream.next.errback(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"))
    assert b'event: problem\ndata: {"title":"UNKNOWN_TOPIC_OR_PARTITION"' in wire.value()
    assert wire.value().endswith(b"0\r\n\r\n")


def test_head_of_a_stream(stream):
    """A HEAD request for a stream gets a response at once, and leaves no timer or stream behind."""
    answer = stream.api.ask("HEAD", "/it")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert stream.api.begin("HEAD", "/it")[1].value().endswith(b"\r\n\r\n")
    assert stream.closed == 0


def test_writes_are_logged():
    """The access log has writes, but not reads."""
    lines = []
    for method in ("GET", "DELETE"):
        api = api_with_response(JsonResponse({}), method)
        api.site._site.logFile = type("Log", (), {"write": staticmethod(lines.append)})
        api.ask(method, "/it")
    (line,) = lines
    assert '"DELETE /it HTTP/1.1" 200' in line
