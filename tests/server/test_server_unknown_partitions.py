"""Partitions that do not exist are removed from requests before these reach the controller."""

from __future__ import annotations

from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from test_server_large_requests import Broker
from twisted.internet.defer import succeed

from kreplica.errors import ErrorCode
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.server.handlers.topics.alter_partition_reassignments import AlterPartitionReassignments
from kreplica.server.handlers.topics.elect_leaders import ElectLeaders
from kreplica.server.handlers.topics.list_partition_reassignments import ListPartitionReassignments
from kreplica.server.metadata.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.wire import messages
from kreplica.wire.messages import Api

UNKNOWN_NAME = "y" * 5000
UNKNOWN = range(20_000)


class Controller:
    """Records the requested partitions, and does nothing for them."""

    def __init__(self) -> None:
        self.asked: list[list[TopicPartition]] = []

    def elect(self, election_type: int, wanted: list[TopicPartition] | None) -> Any:
        assert wanted is not None
        self.asked.append(wanted)
        return succeed(dict.fromkeys(wanted, ErrorCode.ELECTION_NOT_NEEDED))

    def move(self, targets: Any) -> Any:
        self.asked.append(list(targets))
        return succeed(dict.fromkeys(targets))

    def list(self, wanted: list[TopicPartition] | None) -> Any:
        assert wanted is not None
        self.asked.append(wanted)
        return succeed({})


def response_of(api: Api, version: int, body: dict[str, Any], controller: Controller) -> dict[str, Any]:
    """Send a request to a broker that knows only partition 0 of the topic ``t``, and return the response."""
    broker = Broker()
    cache = MetadataCache(broker.clock)
    cache.topics["t"] = TopicMetadata("t", ZERO_UUID, {0: PartitionMetadata(0, 1, 0, [1], [1], [])})
    handler = {
        messages.ELECT_LEADERS: lambda: ElectLeaders(controller.elect, cache),
        messages.ALTER_PARTITION_REASSIGNMENTS: lambda: AlterPartitionReassignments(controller.move, cache),
        messages.LIST_PARTITION_REASSIGNMENTS: lambda: ListPartitionReassignments(controller.list, cache),
    }[api]()
    broker.dispatch.table[api.key] = HandlerEntry.of(api, handler)
    client = broker.connect()
    client.send(request_frame(api, version, 1, body))
    broker.iterations()
    (frame,) = client.transport.frames()
    return parse_answer(frame, api.key, version)[1]


def test_controller_elects_leaders_of_existing_partitions_only() -> None:
    topics = [{"topic": UNKNOWN_NAME, "partitions": list(UNKNOWN)}, {"topic": "t", "partitions": [0, 1]}]
    body = {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1000}
    controller = Controller()
    response = response_of(messages.ELECT_LEADERS, 2, body, controller)
    assert controller.asked == [[TopicPartition("t", 0)]]
    unknown, known = response["replica_election_results"]
    assert {row["error_code"] for row in unknown["partition_result"]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [row["error_code"] for row in known["partition_result"]] == [84, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_controller_moves_replicas_of_existing_partitions_only() -> None:
    rows = [{"partition_index": number, "replicas": [1]} for number in UNKNOWN]
    topics = [{"name": UNKNOWN_NAME, "partitions": rows}, {"name": "t", "partitions": rows[:2]}]
    controller = Controller()
    response = response_of(
        messages.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 1000, "topics": topics}, controller
    )
    assert controller.asked == [[TopicPartition("t", 0)]]
    codes = {
        (len(topic["name"]), row["partition_index"]): row["error_code"]
        for topic in response["responses"]
        for row in topic["partitions"]
    }
    assert codes.pop((1, 0)) == 0
    assert len(codes) == len(UNKNOWN) + 1
    assert set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("name", [UNKNOWN_NAME, "t"])
def test_controller_lists_moves_of_existing_partitions_only(name: str) -> None:
    topics = [{"name": name, "partition_indexes": [*UNKNOWN, 0]}]
    controller = Controller()
    response_of(messages.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 1000, "topics": topics}, controller)
    assert controller.asked == [[TopicPartition("t", 0)] if name == "t" else []]
