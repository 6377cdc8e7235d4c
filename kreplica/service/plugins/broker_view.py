"""Implements ``interfaces.BrokerView``: the broker's interface for plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.coordination import BrokerConnections
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces import Headers
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.service.plugins.led_partitions import LedPartitionsDependencies, LedView, Roles
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.messages import PRODUCE
from kreplica.wire.records import Record

TRIES_MAX = 20
BACKOFF_S = 0.1
TIMEOUT_S = 10.0

_RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""Error codes after which nothing was appended and a retry may succeed."""


class PluginDependencies(LedPartitionsDependencies, Protocol):
    """Parts of a broker that plugins need."""

    @property
    def broker_id(self) -> int: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def connections(self) -> BrokerConnections: ...

    def not_ready(self) -> list[str]: ...


class PluginBroker:
    """The broker as one plugin sees it."""

    def __init__(self, broker: PluginDependencies, roles: Roles, name: str) -> None:
        self.broker_id = broker.broker_id
        self.led = LedView(broker, roles, name)
        self._broker = broker

    def not_ready(self) -> list[str]:
        return self._broker.not_ready()

    def topics(self) -> Mapping[str, int]:
        return {name: len(topic.partitions) for name, topic in sorted(self._broker.metadata.topics.items())}

    def topic_setting(self, topic: str, name: str) -> str | None:
        rows = self._broker.dynamic_settings.describe_topic(topic)
        return next((row.value for row in rows if row.name == name), None)

    def produce(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Deferred[int]:
        now_ms = self._broker.runtime.wall_clock_ms()
        batch = build_batch([Record(NEXT_OFFSET, now_ms, key, value, headers)])
        return Deferred.fromCoroutine(self._produce(TopicPartition(topic, partition), batch))

    async def _produce(self, key: TopicPartition, batch: bytes) -> int:
        reactor = self._broker.runtime.reactor
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(key))
        for attempt in range(TRIES_MAX):
            if attempt:
                await pause(reactor, BACKOFF_S)
            leader = self._leader(key)
            if leader is None:
                continue
            row = await self._send(leader, key, batch)
            if not row["error_code"]:
                return int(row["base_offset"])
            code = ErrorCode.of(row["error_code"])
            error = KafkaError(code, row.get("error_message") or str(key))
            if code not in _RETRIABLE:
                break
        raise error

    def _leader(self, key: TopicPartition) -> int | None:
        topic = self._broker.metadata.topic(key.topic)
        published = topic.partitions.get(key.partition) if topic is not None else None
        return published.leader if published is not None and published.leader >= 0 else None

    async def _send(self, leader: int, key: TopicPartition, batch: bytes) -> dict[str, Any]:
        body = {
            "acks": -1,
            "timeout_ms": int(TIMEOUT_S * 1000),
            "topic_data": [
                {"name": key.topic, "partition_data": [{"index": key.partition, "records": batch}]},
            ],
        }
        connections = self._broker.connections
        try:
            response = await connections.request(leader, PRODUCE, body, timeout_s=TIMEOUT_S + 1)
        except ClientError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        row: dict[str, Any] = response["responses"][0]["partition_responses"][0]
        return row
