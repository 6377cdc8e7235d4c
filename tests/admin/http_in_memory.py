"""HTTP requests to the admin API without sockets, on a virtual clock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from twisted.internet.address import IPv4Address
from twisted.internet.defer import maybeDeferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from kreplica.admin.http.access import Access
from kreplica.admin.http.root import Root
from kreplica.admin.http.site import AdminSite
from kreplica.admin.security.guard import Guard
from kreplica.runtime import Runtime


class SynchronousOffload:
    """An ``Offload`` that runs functions synchronously."""

    def run(self, function, *args, **kwargs):
        return maybeDeferred(function, *args, **kwargs)

    def stop(self):
        pass


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


class ClientTransport(StringTransport):
    """The client's end of a connection."""

    aborted = False

    def abortConnection(self):
        self.aborted = True
        self.disconnecting = True


class Api:
    """Resources served on one port."""

    def __init__(self, *resources, access=None, guard=None):
        self.clock = Clock()
        runtime = Runtime(self.clock, None, SynchronousOffload(), Random(1), lambda: 1_700_000_000_000)
        root = Root(runtime, resources, access or Access(), guard or Guard())
        self.site = AdminSite(self.clock, root, host="127.0.0.1", port=0)

    def connect(self, host="192.168.1.1"):
        """Open a connection, and return its protocol and the transport that collects responses."""
        protocol = self.site._site.buildProtocol(None)
        wire = ClientTransport(peerAddress=IPv4Address("TCP", host, 54321))
        protocol.makeConnection(wire)
        return protocol, wire

    def begin(self, method, path, headers=(), body=None):
        """Send a request without waiting for its response."""
        protocol, wire = self.connect()
        protocol.dataReceived(request(method, path, headers, body))
        return protocol, wire

    def ask(self, method, path, headers=(), body=None):
        """Send a request and return its response, which must be immediate."""
        _, wire = self.begin(method, path, headers, body)
        return parse_response(wire.value())


class Resource:
    """A resource with these routes."""

    def __init__(self, *routes):
        self._routes = routes

    def routes(self):
        return self._routes


def request(method, path, headers=(), body=None):
    """Encode a request.

    :param body: bytes are sent unchanged, other values as JSON.
    """
    lines = {"Host": "localhost", **dict(headers)}
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    if content is not None:
        lines.setdefault("Content-Length", str(len(content)))
        lines.setdefault("Content-Type", "application/json")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (content or b"")


def parse_response(data):
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Response(int(status.split()[1]), headers, body)


def disconnect(protocol):
    """Close the client's connection."""
    protocol.connectionLost(Failure(ConnectionLost()))
