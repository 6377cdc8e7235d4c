"""One connection of the blocking client to a scripted broker."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from scripted_brokers import Request, ScriptedBrokers, versions

from kreplica.blocking.connection import Connection
from kreplica.client_core.addresses import Address, parse_addresses
from kreplica.client_core.errors import (
    ConnectionFailed,
    ConnectionLost,
    MalformedResponse,
    RequestTimedOut,
    UnsupportedVersion,
)
from kreplica.client_core.options import ClientOptions
from kreplica.wire.messages import API_VERSIONS, METADATA

ASK: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}


def connect(brokers: ScriptedBrokers, **options: Any) -> Connection:
    return Connection.open(Address("broker-1", 9092), ClientOptions(**options), brokers.runtime())


def test_highest_common_version_is_used() -> None:
    """An old broker receives requests in versions that it supports; the error names an API that it lacks."""
    brokers = ScriptedBrokers()
    brokers[1].always(API_VERSIONS, lambda request: versions(metadata=4, fetch=-1))
    connection = connect(brokers)
    assert connection.request(METADATA, ASK)["cluster_id"] == "c"
    assert brokers[1].requests_to(METADATA)[0].version == 4
    assert connection.version(METADATA, 2) == 2
    with pytest.raises(UnsupportedVersion, match="broker-1:9092"):
        connection.version(METADATA.__class__.define(99, "Other", (0, 1), None, request="", response=""))


def test_old_broker_gets_api_versions_in_version_0() -> None:
    """If a broker does not support the newest ApiVersions, the client sends version 0."""
    brokers = ScriptedBrokers()

    def unknown(request: Request) -> None:
        body = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]}
        replace(request, version=0).respond(body)

    brokers[1].then(API_VERSIONS, unknown)
    connect(brokers)
    assert [request.version for request in brokers[1].requests_to(API_VERSIONS)] == [4, 2]


def test_refused_connection() -> None:
    """The error of a refused connection contains the address."""
    brokers = ScriptedBrokers()
    brokers[1].is_down = True
    with pytest.raises(ConnectionFailed, match="broker-1:9092: refused") as failure:
        connect(brokers)
    assert failure.value.retriable


def test_connection_lost_within_a_response() -> None:
    """A partial response is treated as no response."""
    brokers = ScriptedBrokers()

    def half(request: Request) -> None:
        request.connection.send(request.response_bytes(brokers.metadata(request.body))[:30])
        request.connection.close()

    brokers[1].then(METADATA, half)
    connection = connect(brokers)
    with pytest.raises(ConnectionLost, match="closed by the broker"):
        connection.request(METADATA, ASK)
    assert connection.closed
    with pytest.raises(ConnectionLost, match="is closed"):
        connection.request(METADATA, ASK)


def test_response_byte_by_byte() -> None:
    """The timeout applies to the whole response, not to each read."""
    brokers = ScriptedBrokers()

    def slowly(request: Request) -> None:
        for index, byte in enumerate(request.response_bytes(brokers.metadata(request.body))):
            request.connection.send_later(index * 0.1, bytes((byte,)))

    brokers[1].then(METADATA, slowly, slowly)
    connection = connect(brokers)
    assert connection.request(METADATA, ASK, timeout_s=30)["cluster_id"] == "c"
    with pytest.raises(RequestTimedOut, match="Metadata"):
        connection.request(METADATA, ASK, timeout_s=3)
    assert connection.closed


def test_missing_response() -> None:
    """A request times out, and the connection is closed because later responses could not be attributed."""
    brokers = ScriptedBrokers()
    brokers[1].then(METADATA, lambda request: None)
    connection = connect(brokers, request_timeout_s=7)
    with pytest.raises(RequestTimedOut):
        connection.request(METADATA, ASK)
    assert brokers.now_s == pytest.approx(1007)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x7f\xff\xff\xff", "2147483647"),
        (b"\xff\xff\xff\xff", "-1"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x63\x00", "response 99"),
        (b"\x00\x00\x00\x03abc", "ends within the header"),
    ],
    ids=["oversized frame", "negative length", "wrong correlation ID", "too short"],
)
def test_invalid_response(data: bytes, why: str) -> None:
    """A frame with an invalid size or a wrong correlation ID closes the connection with an error."""
    brokers = ScriptedBrokers()
    brokers[1].then(METADATA, lambda request: request.connection.send(data))
    connection = connect(brokers)
    with pytest.raises(MalformedResponse, match=why) as failure:
        connection.request(METADATA, ASK)
    assert not failure.value.retriable
    assert connection.closed


def test_throttled_client_waits() -> None:
    """Nothing is sent while the broker throttles the client (KIP-219)."""
    brokers = ScriptedBrokers()
    brokers[1].then(METADATA, lambda request: brokers.metadata(request.body) | {"throttle_time_ms": 5000})
    connection = connect(brokers)
    connection.request(METADATA, ASK)
    assert connection.throttle_remaining_s == 5
    connection.request(METADATA, ASK)
    first, second = brokers[1].requests_to(METADATA)
    assert second.at_s - first.at_s >= 5


def test_address_formats() -> None:
    """Lists, names and IPv6 in brackets are parsed; other texts are rejected."""
    assert parse_addresses("a:1, [::1]:9092,") == (Address("a", 1), Address("::1", 9092))
    assert str(Address("::1", 2)) == "[::1]:2"
    for wrong in ("", "a", "a:0", "a:70000", ":9092", "a:x"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_addresses(wrong)


def test_package_does_not_import_twisted() -> None:
    """The package does not import Twisted, because scripts and Spark workers need no reactor."""
    code = "import sys, kreplica.blocking; sys.exit([m for m in sys.modules if m.split('.')[0] == 'twisted'] != [])"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
