"""Requests that two HTTP servers may parse differently are refused, and nothing that follows them is read."""

from __future__ import annotations

import socket

import pytest
from http_in_memory import Api, Resource

from kreplica.admin.http.api import JsonResponse, Route
from kreplica.admin.http.bounded_requests import BODY_SECONDS_MAX, HEADER_SECONDS_MAX
from tests.support.standalone import StandaloneProcess

HIDDEN = b"GET /v1/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A request that another server would parse as part of the body."""

CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"


def post(*headers: bytes, body: bytes = b"{}", version: bytes = b"1.1") -> bytes:
    lines = [b"POST /v1/w HTTP/" + version, b"Host: localhost", b"Content-Type: application/json", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body + HIDDEN


def get(*headers: bytes, target: bytes = b"/v1/hidden", method: bytes = b"GET") -> bytes:
    return b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: localhost", *headers]) + b"\r\n\r\n" + HIDDEN


REFUSED = {
    "length and chunked": post(b"Content-Length: 2", b"Transfer-Encoding: chunked", body=CHUNKED),
    "chunked and length": post(b"Transfer-Encoding: chunked", b"Content-Length: 2", body=CHUNKED),
    "two lengths": post(b"Content-Length: 2", b"Content-Length: 3"),
    "the same length twice": post(b"Content-Length: 2", b"Content-Length: 2"),
    "a list of lengths": post(b"Content-Length: 2, 2"),
    "a signed length": post(b"Content-Length: +2"),
    "a length of 20 digits": post(b"Content-Length: " + b"9" * 20),
    "a length of 5000 digits": post(b"Content-Length: " + b"9" * 5000),
    "a length in other digits": post(b"Content-Length: \xb2"),
    "identity": post(b"Transfer-Encoding: identity", b"Content-Length: 2"),
    "chunked and identity": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=CHUNKED),
    "chunked twice": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=CHUNKED),
    "gzip and chunked": post(b"Transfer-Encoding: gzip, chunked", body=CHUNKED),
    "another encoding": post(b"Transfer-Encoding: xchunked", body=CHUNKED),
    "a hidden encoding": post(b"Transfer-Encoding: \x0bchunked", body=CHUNKED),
    "chunked in HTTP/1.0": post(b"Transfer-Encoding: chunked", body=CHUNKED, version=b"1.0"),
    "a folded encoding": post(b"Transfer-Encoding:\r\n chunked", body=CHUNKED),
    "a folded header": get(b"X-A: a\r\n b"),
    "a header that begins with white space": get(b" X-A: a"),
    "white space before the colon": post(b"Transfer-Encoding : chunked", b"Content-Length: 2"),
    "a bare line feed": get(b"X-A: a\nX-B: b"),
    "a bare carriage return": get(b"X-A: a\rX-B: b"),
    "a zero byte": get(b"X-A: a\0b"),
    "a header without a colon": get(b"X-A"),
    "two hosts": get(b"Host: other.example"),
    "a chunk size with 0x": post(b"Transfer-Encoding: chunked", body=b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk size": post(b"Transfer-Encoding: chunked", body=b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk without an end": post(b"Transfer-Encoding: chunked", body=b"2\r\n{}XX0\r\n\r\n"),
    "a line feed in a chunk extension": post(b"Transfer-Encoding: chunked", body=b"2;\nxx\r\n{}\r\n0\r\n\r\n"),
    "a long chunk extension": post(b"Transfer-Encoding: chunked", body=b"2;" + b"a" * 5000 + b"\r\n{}\r\n0\r\n\r\n"),
    "another server's URI": get(target=b"http://other.example/v1/hidden"),
    "a URI": get(target=b"http://localhost/v1/hidden"),
    "CONNECT": get(method=b"CONNECT", target=b"other.example:80"),
    "no version": b"GET /v1/hidden\r\n\r\n" + HIDDEN,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "two spaces": get(target=b" /v1/hidden"),
}


class Scene:
    def __init__(self):
        self.handled = []
        write = Route("POST", "/v1/w", self.write, "It.", body={"type": "object"})
        self.api = Api(Resource(write, Route("GET", "/v1/hidden", self.read, "It.")))

    async def read(self, call):
        self.handled.append("hidden")
        return JsonResponse({})

    async def write(self, call):
        self.handled.append("written")
        return JsonResponse({})


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_request_is_refused(name, size):
    """However it is segmented, an ambiguous request gets a 400, its connection is closed, and no handler runs."""
    scene = Scene()
    protocol, wire = scene.api.connect()
    for start in range(0, len(REFUSED[name]), size):
        protocol.dataReceived(REFUSED[name][start : start + size])
    assert wire.value().count(b"HTTP/1.1 ") == 1
    assert wire.value().startswith(b"HTTP/1.1 400 ")
    assert wire.disconnecting
    assert scene.handled == []


@pytest.mark.parametrize(
    "sent",
    [
        post(b"Content-Length: 2"),
        post(b"Transfer-Encoding: chunked", body=CHUNKED),
        post(b"transfer-encoding: Chunked", body=CHUNKED),
        post(b"Transfer-Encoding: chunked", body=b"2;name=value\r\n{}\r\n0\r\n\r\n"),
        post(b"Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n"),
        post(b"Content-Length: 2", b"X-A:\tb "),
    ],
)
@pytest.mark.parametrize("size", [1, 10**6])
def test_unambiguous_request_is_served(sent, size):
    """The body of an unambiguous request ends at the right place, and the next request is read."""
    scene = Scene()
    protocol, wire = scene.api.connect()
    for start in range(0, len(sent), size):
        protocol.dataReceived(sent[start : start + size])
    assert scene.handled == ["written", "hidden"]
    assert not wire.disconnecting


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (b"GET /v1/hidden HTTP/1.1\nHost: localhost\n\n", HEADER_SECONDS_MAX),
        (post(b"Transfer-Encoding: chunked", body=b"f" * 20 + b"\r\n{}"), BODY_SECONDS_MAX),
    ],
)
def test_request_without_an_end_times_out(sent, seconds):
    """Lines that end with a bare line feed, and a chunk size of 80 bits, are never parsed as a complete request."""
    scene = Scene()
    protocol, wire = scene.api.connect()
    protocol.dataReceived(sent)
    scene.api.clock.advance(seconds)
    assert wire.aborted
    assert scene.handled == []


def test_ambiguous_request_is_refused_over_tcp(tmp_path):
    """A real listener responds to an ambiguous request with a 400, and closes the connection."""
    with StandaloneProcess(tmp_path / "process") as process:
        for name, sent in REFUSED.items():
            with socket.create_connection(("127.0.0.1", process.admin_port), timeout=20) as connection:
                connection.sendall(sent)
                received = b""
                while part := connection.recv(65536):
                    received += part
            assert received.startswith(b"HTTP/1.1 400 "), name
            assert received.count(b"HTTP/1.1 ") == 1, name
