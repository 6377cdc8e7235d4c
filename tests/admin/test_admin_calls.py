"""Validation of requests before a handler is called."""

from __future__ import annotations

import json

import pytest
from http_in_memory import Api, Resource, parse_response, request

from kreplica.admin.http.api import JsonResponse, Parameter, Route
from kreplica.admin.http.calls import BODY_BYTES_MAX

BODY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}, "deep": {}},
    "required": ["name"],
    "additionalProperties": False,
}


class RecordingRoutes:
    """Routes whose handler records its calls."""

    def __init__(self):
        self.calls = []

    def routes(self):
        limit = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 9}, "Maximum number.", default=5)
        ratio = Parameter("ratio", {"type": "number"}, "A ratio.")
        flag = Parameter("flag", {"type": ["boolean", "null"]}, "Whether.")
        number = Parameter("number", {"type": "integer"}, "Which.")
        return (
            Route("GET", "/things", self.keep, "Things.", query=(limit, ratio, flag)),
            Route("GET", "/things/{number}", self.keep, "One.", query=(number,)),
            Route("GET", "/named/{name:path}/end", self.keep, "By name."),
            Route("POST", "/things", self.keep, "Create a thing.", body=BODY),
            Route("PATCH", "/things", self.keep, "Change.", body={"type": "object"}, problems={412: "Changed."}),
            Route("DELETE", "/things", self.keep, "Delete."),
        )

    async def keep(self, call):
        self.calls.append(call)
        return JsonResponse({})


@pytest.fixture
def recording_routes():
    return RecordingRoutes()


@pytest.fixture
def api(recording_routes):
    return Api(recording_routes)


def send_invalid(api, recording_routes, method, path, headers=(), body=None, status=400):
    answer = api.ask(method, path, headers, body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert recording_routes.calls == []
    problem = answer.json()
    assert problem["status"] == status
    assert problem["instance"] == path.partition("?")[0]
    return problem


def test_typed_parameters(api, recording_routes):
    """A handler receives typed parameters, and defaults for absent ones."""
    api.ask("GET", "/things?ratio=-2.5&flag=true")
    assert dict(recording_routes.calls[0].query) == {"limit": 5, "ratio": -2.5, "flag": True}
    api.ask("GET", "/things?limit=9")
    assert recording_routes.calls[1].query["limit"] == 9


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/things?limt=3", "unknown query parameter 'limt'"),
        ("/things?limit=3&limit=4", "occurs 2 times"),
        ("/things?limit=0", "0 is less than the minimum"),
        ("/things?limit=1_0", "'1_0' is not of type 'integer'"),
        ("/things?limit=", "'' is not of type 'integer'"),
        ("/things?flag=yes", "'yes' is not of type"),
        ("/things?ratio=%FF", "not UTF-8"),
        ("/things/seven", "path parameter 'number'"),
    ],
)
def test_invalid_parameters(api, recording_routes, path, reason):
    """The error names the invalid parameter and the reason."""
    assert reason in send_invalid(api, recording_routes, "GET", path)["detail"]


def test_nearest_name_is_suggested(api, recording_routes):
    """Errors about unknown parameters and members suggest the nearest name."""
    assert send_invalid(api, recording_routes, "GET", "/things?limt=3")["what_to_do"] == "Did you mean limit?"
    problem = send_invalid(api, recording_routes, "POST", "/things", body={"name": "a", "conut": 3})
    assert problem["what_to_do"] == "Did you mean count?"


def test_names_with_slashes(api, recording_routes):
    """A name with slashes is matched as a whole, percent-encoded or not."""
    api.ask("GET", "/named/a%2Fb%20c/end")
    api.ask("GET", "/named/a/b/end")
    assert [call.path["name"] for call in recording_routes.calls] == ["a/b c", "a/b"]


def test_valid_bodies(api, recording_routes):
    """A handler receives the parsed JSON; an integer may be written as 2.0."""
    answer = api.ask("POST", "/things?dry_run=true", body=b'{"name": "\\u00e9", "count": 2.0}')
    assert answer.status == 200
    (call,) = recording_routes.calls
    assert call.body == {"name": "é", "count": 2}
    assert type(call.body["count"]) is int
    assert call.dry_run


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"name": NaN}', "NaN is not a JSON number"),
        (b'{"name": "a", "count": 1e999}', "is out of range"),
        (b'{"name": "\\ud800"}', "not JSON"),
        (b'{"name": "\xff"}', "not JSON"),
        (b'{"name": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"name": "a", "count": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[]", "body: [] is not of type 'object'"),
        (b"{}", "'name' is a required property"),
        (b'{"name": 3}', "body.name: 3 is not of type 'string'"),
        (b'{"name": "a", "count": true}', "body.count: True is not of type 'integer'"),
    ],
)
def test_invalid_bodies(api, recording_routes, body, reason):
    """An invalid body is refused, and the error has the reason and the location."""
    assert reason in send_invalid(api, recording_routes, "POST", "/things", body=body)["detail"]


def test_all_errors_are_listed(api, recording_routes):
    """The response lists all errors of a body; a long value does not hide its reason."""
    problem = send_invalid(api, recording_routes, "POST", "/things", body={"name": 3, "count": 0, "x" * 1000: 1})
    listed = {row["where"]: row["what"] for row in problem["errors"]}
    assert sorted(listed) == ["body", "body.count", "body.name"]
    assert all(len(reason) < 250 for reason in listed.values())
    assert listed["body"].endswith("was unexpected)")


def test_missing_body(api, recording_routes):
    """A missing required body is refused, and the advice lists its members; an optional one defaults to ``{}``."""
    problem = send_invalid(api, recording_routes, "POST", "/things")
    assert problem["what_to_do"] == "Members: name (required), count, deep."
    api.ask("PATCH", "/things")
    assert recording_routes.calls[0].body == {}


def test_unexpected_body(api, recording_routes):
    """A body is refused if the route does not accept one."""
    assert "does not accept a body" in send_invalid(api, recording_routes, "DELETE", "/things", body={})["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_bodies_of_other_content_types(api, recording_routes, content_type):
    """Only a JSON content type is accepted, because forms on other sites cannot send it."""
    headers = {"Content-Type": content_type}
    problem = send_invalid(api, recording_routes, "POST", "/things", headers, b'{"name": "a"}', status=415)
    assert "application/json" in problem["what_to_do"]


def test_bodies_are_bounded(api, recording_routes):
    """A body of 1 MiB is accepted, and a longer one is refused, with or without a declared length."""
    most = b'{"name": "' + b"a" * (BODY_BYTES_MAX - 12) + b'"}'
    assert api.ask("POST", "/things", body=most).status == 200
    recording_routes.calls.clear()
    send_invalid(api, recording_routes, "POST", "/things", body=most + b" ", status=413)
    chunks = b"".join(b"10000\r\n" + b"a" * 0x10000 + b"\r\n" for _ in range(17)) + b"0\r\n\r\n"
    protocol, wire = api.connect()
    headers = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    protocol.dataReceived(request("POST", "/things", headers) + chunks)
    assert parse_response(wire.value()).status == 413


def test_endless_body_is_cut_off(api):
    """An endless body uses bounded memory, and its connection is closed."""
    protocol, wire = api.connect()
    headers = {"Content-Length": str(2**40), "Content-Type": "application/json"}
    protocol.dataReceived(request("POST", "/things", headers))
    for _ in range(17):
        protocol.dataReceived(b"a" * BODY_BYTES_MAX)
    assert wire.aborted


@pytest.mark.parametrize(
    ("path", "headers", "status"), [("/things?" + "a" * 20_000, {}, 414), ("/things", {"X": "a" * 20_000}, 431)]
)
def test_lines_are_bounded(api, path, headers, status):
    """A path or header that is too long is refused with a message, and the connection is closed."""
    _, wire = api.begin("GET", path, headers)
    answer = parse_response(wire.value())
    assert (answer.status, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert wire.disconnecting


def test_if_match(api, recording_routes):
    """If-Match is passed to handlers that support it, and refused for others."""
    api.ask("PATCH", "/things", {"If-Match": '"7.abc"'}, {})
    api.ask("PATCH", "/things", {"If-Match": "*"}, {})
    api.ask("PATCH", "/things", (), {})
    assert [call.if_match for call in recording_routes.calls] == ["7.abc", None, None]
    recording_routes.calls.clear()
    for header in ('W/"7"', "7", '"7", "8"'):
        send_invalid(api, recording_routes, "PATCH", "/things", {"If-Match": header}, {})
    send_invalid(api, recording_routes, "DELETE", "/things", {"If-Match": '"7"'})


def test_caller_is_passed_to_the_handler(api, recording_routes):
    """A handler receives the caller's authorization, and whether another broker forwarded the request."""
    api.ask("GET", "/things", {"Authorization": "Bearer x", "X-Kreplica-Forwarded": "1", "Last-Event-ID": "9"})
    (call,) = recording_routes.calls
    assert (call.authorization, call.forwarded, call.last_event_id) == ("Bearer x", True, "9")


def test_unknown_methods_and_paths(api, recording_routes):
    """An unknown path gets a 404; an unsupported method gets a 405 that lists the supported ones."""
    assert send_invalid(api, recording_routes, "GET", "/thongs", status=404)["title"] == "NOT_FOUND"
    assert send_invalid(api, recording_routes, "GET", "/things//", status=404)["title"] == "NOT_FOUND"
    answer = api.ask("PUT", "/things", (), {})
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH, POST")
    assert "GET" in json.loads(answer.body)["what_to_do"]


@pytest.mark.parametrize("line", [b"g3t /things", b"GET /%FF", b"GET /things/%C3%28"])
def test_request_line_that_is_not_text(api, line):
    """A method or path that is not text is rejected with a message."""
    protocol, wire = api.connect()
    protocol.dataReceived(line + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = parse_response(wire.value())
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")


def test_head(api, recording_routes):
    """The response to HEAD is that to GET without the body."""
    answer = api.ask("HEAD", "/things")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0
    assert len(recording_routes.calls) == 1


def test_two_resources_of_one_api():
    """Two resources of one API are served on the same port."""
    first, second = RecordingRoutes(), RecordingRoutes()
    other = Resource(Route("GET", "/others", second.keep, "Others."))
    api = Api(first, other)
    api.ask("GET", "/others")
    assert (len(first.calls), len(second.calls)) == (0, 1)
