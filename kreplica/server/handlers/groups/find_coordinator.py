"""FindCoordinator (key 10): finds the broker that coordinates a group or a producer's transactions."""

from __future__ import annotations

from typing import Any

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.coordination import ClusterView, partition_of
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.server.metadata.internal_topics import InternalTopics
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request

BATCHED_FROM = 4

TOPIC_OF_KEY_TYPE = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
"""Internal topic that stores the state of each key type: groups and transactional IDs."""

Row = dict[str, Any]


class FindCoordinator:
    """Responds with the leader of the partition that stores the state of the group or transactional ID.

    Creates the internal topic on first use.
    """

    def __init__(self, view: ClusterView, metadata: MetadataCache, internal_topics: InternalTopics) -> None:
        self._view = view
        self._metadata = metadata
        self._internal_topics = internal_topics

    def __call__(self, request: Request) -> None:
        body = request.body
        key_type = body.get("key_type", 0)
        listener = request.connection.listener
        if request.version < BATCHED_FROM:
            request.respond(self._row(key_type, body["key"], listener))
            return
        rows = [self._row(key_type, key, listener) | {"key": key} for key in body["coordinator_keys"]]
        request.respond({"coordinators": rows})

    def _row(self, key_type: int, key: str, listener: str) -> Row:
        try:
            return self._find(key_type, key, listener)
        except KafkaError as error:
            return {
                "node_id": -1,
                "host": "",
                "port": -1,
                "error_code": int(error.code),
                "error_message": error.message or None,
            }

    def _find(self, key_type: int, key: str, listener: str) -> Row:
        topic = TOPIC_OF_KEY_TYPE.get(key_type)
        if topic is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
        if key_type == 1 and not key:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional ID is empty")
        count = self._view.partition_count(topic)
        if count is None:
            self._internal_topics.ensure(topic)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is being created; retry")
        partition = TopicPartition(topic, partition_of(key, count))
        leader = self._view.leader_of(partition)
        for broker, endpoint in self._metadata.live_on(listener):
            if broker.broker_id == leader:
                return {
                    "node_id": leader,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "error_code": 0,
                    "error_message": None,
                }
        text = f"{partition} has no live leader with an endpoint on listener {listener}; retry"
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
