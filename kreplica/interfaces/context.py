"""What a plugin is given: its settings, the runtime, and the broker that it is a part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from kreplica.interfaces.records import Headers, LogRecord
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime


class LogBatch(Protocol):
    """One batch of a partition's log.

    :ivar note: what the plugin that reads left there by ``Instead``, or None.
    """

    base_offset: int
    next_offset: int
    max_timestamp_ms: int
    note: bytes | None

    def may_hold(self, text: bytes) -> bool:
        """Whether these bytes can be in its records: false only where they are surely not; cheaper than to look."""

    def records(self) -> Sequence[LogRecord]:
        """Its records, opened now; none of one that consumers do not see.

        :raise KreplicaError: they are malformed.
        """


class LedPartitions(Protocol):
    """The partitions that this broker leads: what is appended here goes the way of every other record."""

    def follow(self, topic: str, leads: Callable[[TopicPartition, bool], None]) -> None:
        """Be told when this broker begins to lead a partition of a topic (again, in another epoch), and when it ceases.

        To be called by the plugin's factory: later, something may have been missed.
        """

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Where its log starts and ends.

        :raise KafkaError: NOT_LEADER_OR_FOLLOWER.
        """

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """The first offset that may be of a record which is not older; the log's end where there is none.

        :raise KafkaError: NOT_LEADER_OR_FOLLOWER.
        """

    def read(self, partition: TopicPartition, offset: int) -> Deferred[Sequence[LogBatch]]:
        """About a megabyte of batches from an offset on, up to the log's end, away from the reactor; none at the end.

        Fails with KafkaError: NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """

    def append(self, partition: TopicPartition, records: Sequence[LogRecord]) -> int:
        """Append one batch, as for ``acks=all``; it is in the log when this returns, and committed later.

        :return: the first record's offset; the records' own do not count.
        :raise KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS and whatever a produce may be refused with.
        """


class BrokerView(Protocol):
    """The broker as plugins see it."""

    @property
    def broker_id(self) -> int:
        """Its number."""

    @property
    def led(self) -> LedPartitions:
        """The partitions that it leads."""

    def not_ready(self) -> list[str]:
        """Why clients cannot be served just now, as sentences; none where they can."""

    def topics(self) -> Mapping[str, int]:
        """How many partitions each topic has, as far as this broker was told."""

    def topic_setting(self, topic: str, name: str) -> str | None:
        """What a topic's setting is now, by Kafka's name; None where there is no such setting or value."""

    def produce(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Deferred[int]:
        """Send one record to whichever broker leads, ``acks=all``; fires with its offset.

        Fails with KafkaError; after CONNECTION errors nobody knows whether it is in the log.
        """


class PluginContext(NamedTuple):
    """Given to a plugin's factory.

    :param settings: its own, without ``kreplica.plugin.NAME.``; their texts are unchecked.
    :param broker: of use once something is called or started, but for ``broker_id`` and ``led.follow``.
    """

    name: str
    settings: Mapping[str, str]
    runtime: Runtime
    broker: BrokerView
