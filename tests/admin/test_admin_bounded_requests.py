"""Limits on connections and incomplete requests of the admin port; health checks are never affected."""

from __future__ import annotations

import pytest
from http_in_memory import Api, Resource, disconnect, parse_response, request
from twisted.internet.defer import Deferred

from kreplica.admin.http import routing
from kreplica.admin.http.api import JsonResponse, Route
from kreplica.admin.http.bounded_requests import (
    ADDRESS_CONNECTIONS_MAX,
    BODY_SECONDS_MAX,
    CONNECTIONS_MAX,
    HEADER_SECONDS_MAX,
)
from kreplica.admin.resources.health import LIVE

HALF = b"GET /health/live HTTP/1.1\r\nHost: local"


class Scene:
    """An API with a health check that responds at once, and a handler that waits."""

    def __init__(self):
        self.waits = []
        routes = Route("GET", LIVE, self.health, "It."), Route("GET", "/slow", self.slow, "It.")
        self.api = Api(Resource(*routes))
        self.connections = self.api.site.connections

    async def health(self, call):
        return JsonResponse({"status": "live"})

    async def slow(self, call):
        self.waits.append(Deferred())
        await self.waits[-1]
        return JsonResponse({})

    def half_sent(self, host="10.0.0.1"):
        protocol, wire = self.api.connect(host)
        protocol.dataReceived(HALF)
        return protocol, wire

    def is_healthy(self, host="10.0.0.9"):
        protocol, wire = self.api.connect(host)
        protocol.dataReceived(request("GET", LIVE))
        status = parse_response(wire.value()).status if wire.value() else 0
        disconnect(protocol)
        return status == 200


@pytest.fixture
def scene():
    return Scene()


@pytest.mark.parametrize("hosts", [1, 3, 1100])
def test_incomplete_requests_do_not_block_the_port(scene, hosts):
    """The oldest of 1,100 incomplete requests are closed, and health checks are still answered (S11)."""
    opened = []
    for number in range(1100):
        opened.append(scene.half_sent(f"10.1.{number % hosts // 250}.{number % hosts % 250}"))
        if number % 100 == 99:
            assert scene.is_healthy()
    assert scene.connections.count <= CONNECTIONS_MAX
    assert opened[0][1].aborted
    assert not opened[-1][1].aborted
    for protocol, _ in opened:
        disconnect(protocol)
    assert scene.connections.count == 0


def test_connections_per_address_are_bounded(scene):
    """One address cannot use all connections: when it opens one too many, its oldest is closed."""
    opened = [scene.half_sent() for _ in range(ADDRESS_CONNECTIONS_MAX)]
    assert not any(wire.aborted for _, wire in opened)
    scene.half_sent()
    assert [wire.aborted for _, wire in opened[:2]] == [True, False]
    assert scene.connections.count == ADDRESS_CONNECTIONS_MAX


def test_address_with_most_connections_loses_one(scene):
    """While one address fills the port, other hosts keep their connections, even if they send slowly."""
    other = scene.half_sent("10.0.0.7")
    for number in range(1100):
        scene.half_sent(f"10.0.1.{number % 3}")
    assert not other[1].aborted


def test_connections_with_pending_responses_are_not_closed(scene, monkeypatch):
    """If all connections wait for responses, a new connection is refused."""
    monkeypatch.setattr(routing, "CALLS_MAX", CONNECTIONS_MAX)
    busy = []
    for number in range(CONNECTIONS_MAX):
        protocol, wire = scene.api.connect(f"10.0.0.{number % 3}")
        protocol.dataReceived(request("GET", "/slow"))
        busy.append(wire)
    _, wire = scene.api.connect("10.0.0.9")
    assert wire.aborted
    assert not any(each.aborted for each in busy)
    assert scene.connections.refused == 1


def test_idle_connection_is_closed_for_a_new_one(scene):
    opened = []
    for number in range(CONNECTIONS_MAX):
        protocol, wire = scene.api.connect(f"10.0.0.{number % 3}")
        protocol.dataReceived(request("GET", LIVE))
        opened.append(wire)
    assert scene.is_healthy()
    assert sum(each.aborted for each in opened) == 1


@pytest.mark.parametrize("step_s", [1.0, 100.0])
def test_headers_have_a_deadline(scene, step_s):
    """A connection whose headers are incomplete at the deadline is closed, however often the client sends."""
    protocol, wire = scene.half_sent()
    passed = 0.0
    while passed < HEADER_SECONDS_MAX and not wire.aborted:
        protocol.dataReceived(b"x")
        scene.api.clock.advance(step_s)
        passed += step_s
    assert wire.aborted
    assert scene.connections.evicted == 1


def test_body_has_a_deadline(scene):
    protocol, wire = scene.api.connect()
    protocol.dataReceived(b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(int(BODY_SECONDS_MAX) - 1):
        scene.api.clock.advance(1)
        protocol.dataReceived(b"x")
    assert not wire.aborted
    scene.api.clock.advance(1)
    assert wire.aborted


def test_pending_response_has_no_deadline(scene):
    """A slow handler does not exhaust the client's deadline, and the next request has its own."""
    protocol, wire = scene.api.connect()
    protocol.dataReceived(request("GET", "/slow"))
    scene.api.clock.advance(HEADER_SECONDS_MAX + BODY_SECONDS_MAX)
    assert not wire.aborted
    scene.waits[0].callback(None)
    assert parse_response(wire.value()).status == 200
    protocol.dataReceived(HALF)
    scene.api.clock.advance(HEADER_SECONDS_MAX)
    assert wire.aborted


def test_health_is_answered_when_all_calls_are_in_use(scene):
    """Slow calls cannot use up the capacity that is reserved for health checks."""
    for number in range(routing.CALLS_MAX):
        protocol, _ = scene.api.connect(f"10.0.0.{number % 3}")
        protocol.dataReceived(request("GET", "/slow"))
    rejected = scene.api.ask("GET", "/slow")
    assert rejected.status == 503
    assert scene.is_healthy()
