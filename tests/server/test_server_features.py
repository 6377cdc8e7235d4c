"""Features in the response to ApiVersions; if they are present, clients use transactions of level 2."""

from __future__ import annotations

from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from test_server_dispatch import SOFTWARE, MemoryTransport
from twisted.internet.task import Clock

from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.request import Request
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.wire import messages

WHOLE = {messages.PRODUCE: 12, messages.END_TXN: 5, messages.TXN_OFFSET_COMMIT: 5}


def _unexpected(request: Request) -> None:
    raise AssertionError(request)


def _asked(versions_max: dict[messages.Api, int], version: int) -> dict[str, Any]:
    """Return the response of a broker that serves these APIs, each up to its version."""
    table = {api.key: HandlerEntry(api, 0, highest, _unexpected) for api, highest in versions_max.items()}
    metrics = ServerMetrics()
    clock = Clock()
    flush_scope = FlushScope(clock)
    connection = Connection("PLAINTEXT", "1.2.3.4:5", Bounds(), flush_scope, metrics, clock.seconds)
    transport = MemoryTransport()
    connection.attach(transport)
    dispatch = Dispatch(table, metrics, clock.seconds, flush_scope)
    with flush_scope:
        frame = request_frame(messages.API_VERSIONS, version, 1, SOFTWARE)
        dispatch.frame_received(connection, memoryview(frame)[4:])
    return parse_answer(transport.frames()[0], messages.API_VERSIONS.key, version)[1]


def test_transaction_version_2_is_finalized_if_all_of_its_apis_are_served() -> None:
    """Kafka 4 clients then rely on brokers to add partitions to their transactions (KIP-890)."""
    answer = _asked(WHOLE, 4)
    assert answer["supported_features"] == [{"name": "transaction.version", "min_version": 0, "max_version": 2}]
    assert answer["finalized_features"] == [
        {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}
    ]
    assert answer["finalized_features_epoch"] >= 0, "clients ignore levels that have no epoch"


def test_version_3_of_api_versions_contains_finalized_features_only() -> None:
    """Clients that send version 3 fail on a minimum level of 0."""
    answer = _asked(WHOLE, 3)
    assert answer["supported_features"] == []
    assert [row["name"] for row in answer["finalized_features"]] == ["transaction.version"]


@pytest.mark.parametrize("lacking", WHOLE, ids=lambda api: api.name)
def test_feature_is_not_advertised_while_an_api_is_too_old(lacking: messages.Api) -> None:
    for table in (
        {**WHOLE, lacking: WHOLE[lacking] - 1},
        {api: highest for api, highest in WHOLE.items() if api is not lacking},
    ):
        answer = _asked(table, 4)
        assert (answer["supported_features"], answer["finalized_features"]) == ([], [])
        assert answer["finalized_features_epoch"] == -1
