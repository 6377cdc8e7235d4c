"""Negotiation of API versions between a client and a broker."""

from __future__ import annotations

from typing import Any

import pytest
from client_peer import Peer, result_of

from kreplica.client.connection import Connection
from kreplica.client.errors import UnsupportedVersion
from kreplica.errors import ErrorCode, KafkaError
from kreplica.wire.messages import API_VERSIONS, APIS, HEARTBEAT, LIST_GROUPS, METADATA


def versions_body(error_code: int = 0, **ranges: tuple[int, int]) -> dict[str, Any]:
    """Return the body of an ApiVersions response, with ranges by API name."""
    keys = {api.name: api.key for api in APIS.values()}
    return {
        "error_code": error_code,
        "api_keys": [
            {"api_key": keys[name], "min_version": low, "max_version": high} for name, (low, high) in ranges.items()
        ],
        "throttle_time_ms": 0,
    }


def test_highest_common_version_is_chosen(peer: Peer, connection: Connection) -> None:
    """The highest common version is used, unless the caller asks for a lower one."""
    negotiated = connection.negotiate()
    ((key, version, correlation_id, body),) = peer.requests()
    assert (key, version, body["client_software_name"]) == (18, 4, "kreplica")
    ranges = {"ApiVersions": (0, 4), "Metadata": (0, 9), "Heartbeat": (90, 99)}
    peer.respond(API_VERSIONS, 4, correlation_id, versions_body(**ranges))
    assert result_of(negotiated) == {18: (0, 4), 3: (0, 9), 12: (90, 99)}
    assert (connection.version(METADATA), connection.version(METADATA, at_most=4)) == (9, 4)
    for choose in (
        lambda: connection.version(HEARTBEAT),
        lambda: connection.version(LIST_GROUPS),
        lambda: connection.version(METADATA, at_most=-1),
    ):
        with pytest.raises(UnsupportedVersion) as raised:
            choose()
        assert not raised.value.retriable


@pytest.mark.parametrize(("ranges", "second"), [({"ApiVersions": (0, 2)}, 2), ({}, 0)])
def test_older_broker_is_asked_again(
    peer: Peer, connection: Connection, ranges: dict[str, tuple[int, int]], second: int
) -> None:
    """A broker without the newest ApiVersions responds in version 0, and gets a second request in its own version."""
    negotiated = connection.negotiate()
    ((_, _, correlation_id, _),) = peer.requests()
    peer.respond(API_VERSIONS, 0, correlation_id, versions_body(ErrorCode.UNSUPPORTED_VERSION, **ranges))
    ((_, version, correlation_id, _),) = peer.requests()
    assert version == second
    peer.respond(API_VERSIONS, second, correlation_id, versions_body(Metadata=(1, 5)))
    assert result_of(negotiated) == {3: (1, 5)}


@pytest.mark.parametrize(
    ("code", "expected"), [(35, ErrorCode.UNSUPPORTED_VERSION), (42, ErrorCode.INVALID_REQUEST), (9999, -1)]
)
def test_broker_refuses_api_versions(peer: Peer, connection: Connection, code: int, expected: int) -> None:
    """After two refusals, negotiation fails with the broker's error code, even if the code is unknown."""
    negotiated = connection.negotiate()
    for _ in range(2):
        for _, version, correlation_id, _ in peer.requests():
            peer.respond(API_VERSIONS, 0 if code == 35 else version, correlation_id, versions_body(code))
    with pytest.raises(KafkaError) as raised:
        result_of(negotiated)
    assert raised.value.code == expected
    assert peer.requests() == []
