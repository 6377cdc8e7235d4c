"""Validation of requests before a handler is called."""

from __future__ import annotations

import json

import pytest
from http_in_memory import Api, Resource, received, request

from kreplica.admin.http.api import JsonResponse, Parameter, Route
from kreplica.admin.http.calls import BODY_BYTES_MAX

BODY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}, "deep": {}},
    "required": ["name"],
    "additionalProperties": False,
}


class RecordingRoutes:
    """Routes whose handler keeps its call."""

    def __init__(self):
        self.calls = []

    def routes(self):
        limit = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 9}, "So many.", default=5)
        ratio = Parameter("ratio", {"type": "number"}, "A ratio.")
        flag = Parameter("flag", {"type": ["boolean", "null"]}, "Whether.")
        number = Parameter("number", {"type": "integer"}, "Which.")
        return (
            Route("GET", "/things", self.keep, "Things.", query=(limit, ratio, flag)),
            Route("GET", "/things/{number}", self.keep, "One.", query=(number,)),
            Route("GET", "/named/{name:path}/end", self.keep, "By name."),
            Route("POST", "/things", self.keep, "Make one.", body=BODY),
            Route("PATCH", "/things", self.keep, "Change.", body={"type": "object"}, problems={412: "Changed."}),
            Route("DELETE", "/things", self.keep, "Delete."),
        )

    async def keep(self, call):
        self.calls.append(call)
        return JsonResponse({})


@pytest.fixture
def kept():
    return RecordingRoutes()


@pytest.fixture
def api(kept):
    return Api(kept)


def refused(api, kept, method, path, headers=(), body=None, status=400):
    answer = api.ask(method, path, headers, body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert kept.calls == []
    problem = answer.json()
    assert problem["status"] == status
    assert problem["instance"] == path.partition("?")[0]
    return problem


def test_typed_parameters(api, kept):
    """A handler receives typed parameters and the defaults of absent ones."""
    api.ask("GET", "/things?ratio=-2.5&flag=true")
    assert dict(kept.calls[0].query) == {"limit": 5, "ratio": -2.5, "flag": True}
    api.ask("GET", "/things?limit=9")
    assert kept.calls[1].query["limit"] == 9


@pytest.mark.parametrize(
    ("path", "said"),
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
def test_invalid_parameters(api, kept, path, said):
    """Each invalid parameter is named with the reason."""
    assert said in refused(api, kept, "GET", path)["detail"]


def test_nearest_name_is_suggested(api, kept):
    """Errors about unknown parameters and members contain it."""
    assert refused(api, kept, "GET", "/things?limt=3")["what_to_do"] == "Did you mean limit?"
    problem = refused(api, kept, "POST", "/things", body={"name": "a", "conut": 3})
    assert problem["what_to_do"] == "Did you mean count?"


def test_names_with_slashes(api, kept):
    """A name with slashes is matched as a whole, percent-encoded or not."""
    api.ask("GET", "/named/a%2Fb%20c/end")
    api.ask("GET", "/named/a/b/end")
    assert [call.path["name"] for call in kept.calls] == ["a/b c", "a/b"]


def test_valid_bodies(api, kept):
    """A handler receives the parsed JSON; an integer may be written as 2.0."""
    answer = api.ask("POST", "/things?dry_run=true", body=b'{"name": "\\u00e9", "count": 2.0}')
    assert answer.status == 200
    (call,) = kept.calls
    assert call.body == {"name": "é", "count": 2}
    assert type(call.body["count"]) is int
    assert call.dry_run


@pytest.mark.parametrize(
    ("body", "said"),
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
def test_invalid_bodies(api, kept, body, said):
    """Each invalid body is rejected with the reason and the location."""
    assert said in refused(api, kept, "POST", "/things", body=body)["detail"]


def test_all_errors_are_listed(api, kept):
    """A long value does not hide the reason."""
    problem = refused(api, kept, "POST", "/things", body={"name": 3, "count": 0, "x" * 1000: 1})
    listed = {row["where"]: row["what"] for row in problem["errors"]}
    assert sorted(listed) == ["body", "body.count", "body.name"]
    assert all(len(what) < 250 for what in listed.values())
    assert listed["body"].endswith("was unexpected)")


def test_missing_body(api, kept):
    """A missing required body is rejected with its members; an optional body defaults to an empty object."""
    problem = refused(api, kept, "POST", "/things")
    assert problem["what_to_do"] == "Members: name (required), count, deep."
    api.ask("PATCH", "/things")
    assert kept.calls[0].body == {}


def test_unexpected_body(api, kept):
    """A body that would be ignored is rejected."""
    assert "does not accept a body" in refused(api, kept, "DELETE", "/things", body={})["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_bodies_of_other_content_types(api, kept, content_type):
    """Only a JSON content type is accepted, which a form of another site cannot send."""
    headers = {"Content-Type": content_type}
    problem = refused(api, kept, "POST", "/things", headers, b'{"name": "a"}', status=415)
    assert "application/json" in problem["what_to_do"]


def test_bodies_are_bounded(api, kept):
    """A body of up to 1 MiB is accepted and a longer one is rejected, with or without a declared length."""
    most = b'{"name": "' + b"a" * (BODY_BYTES_MAX - 12) + b'"}'
    assert api.ask("POST", "/things", body=most).status == 200
    kept.calls.clear()
    refused(api, kept, "POST", "/things", body=most + b" ", status=413)
    chunks = b"".join(b"10000\r\n" + b"a" * 0x10000 + b"\r\n" for _ in range(17)) + b"0\r\n\r\n"
    protocol, wire = api.connect()
    headers = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    protocol.dataReceived(request("POST", "/things", headers) + chunks)
    assert received(wire.value()).status == 413


def test_endless_body_is_cut_off(api):
    """The body uses bounded memory and ends with the connection."""
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
    """A too long path or header is rejected with a message and closes the connection."""
    _, wire = api.begin("GET", path, headers)
    answer = received(wire.value())
    assert (answer.status, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert wire.disconnecting


def test_if_match(api, kept):
    """If-Match reaches a handler that supports it, and is rejected otherwise."""
    api.ask("PATCH", "/things", {"If-Match": '"7.abc"'}, {})
    api.ask("PATCH", "/things", {"If-Match": "*"}, {})
    api.ask("PATCH", "/things", (), {})
    assert [call.if_match for call in kept.calls] == ["7.abc", None, None]
    kept.calls.clear()
    for header in ('W/"7"', "7", '"7", "8"'):
        refused(api, kept, "PATCH", "/things", {"If-Match": header}, {})
    refused(api, kept, "DELETE", "/things", {"If-Match": '"7"'})


def test_caller_is_passed_to_the_handler(api, kept):
    """A handler receives the caller's authorization and whether another broker forwarded the request."""
    api.ask("GET", "/things", {"Authorization": "Bearer x", "X-Kreplica-Forwarded": "1", "Last-Event-ID": "9"})
    (call,) = kept.calls
    assert (call.authorization, call.forwarded, call.last_event_id) == ("Bearer x", True, "9")


def test_unknown_methods_and_paths(api, kept):
    """An unknown path is a 404, an unsupported method a 405 with the supported ones."""
    assert refused(api, kept, "GET", "/thongs", status=404)["title"] == "NOT_FOUND"
    assert refused(api, kept, "GET", "/things//", status=404)["title"] == "NOT_FOUND"
    answer = api.ask("PUT", "/things", (), {})
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH, POST")
    assert "GET" in json.loads(answer.body)["what_to_do"]


@pytest.mark.parametrize("line", [b"g3t /things", b"GET /%FF", b"GET /things/%C3%28"])
def test_request_line_that_is_not_text(api, line):
    """A method or path that is not text is rejected with a message."""
    protocol, wire = api.connect()
    protocol.dataReceived(line + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = received(wire.value())
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")


def test_head(api, kept):
    """HEAD is answered as GET is, without the body."""
    answer = api.ask("HEAD", "/things")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0
    assert len(kept.calls) == 1


def test_two_resources_of_one_api():
    """Two resources of one API share only the port."""
    first, second = RecordingRoutes(), RecordingRoutes()
    other = Resource(Route("GET", "/others", second.keep, "Others."))
    api = Api(first, other)
    api.ask("GET", "/others")
    assert (len(first.calls), len(second.calls)) == (0, 1)
