"""Argument of a plugin's factory: its settings, the runtime, and the broker to which it belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from kreplica.interfaces.records import Headers, LogRecord
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime


class LogBatch(Protocol):
    """One batch of a partition's log.

    :ivar note: the note that this plugin stored with the batch (``ReplaceRecords.note``), or None.
    """

    base_offset: int
    next_offset: int
    max_timestamp_ms: int
    note: bytes | None

    def may_hold(self, text: bytes) -> bool:
        """Return False if the records certainly do not contain these bytes; cheaper than reading them."""

    def records(self) -> Sequence[LogRecord]:
        """Decode and return its records; an empty sequence if consumers do not receive this batch.

        :raise KreplicaError: the batch is malformed.
        """


class LedPartitions(Protocol):
    """Partitions that this broker leads; appended records are replicated like those of any producer."""

    def on_leadership_change(self, topic: str, callback: Callable[[TopicPartition, bool], None]) -> None:
        """Call ``callback`` when this broker becomes leader of a partition, its epoch changes, or it stops leading.

        The plugin's factory must call this; a later call may miss changes.

        :param callback: receives the partition, and True if this broker leads it now.
        """

    def follow(self, topic: str, leads: Callable[[TopicPartition, bool], None]) -> None:
        """Deprecated name of ``on_leadership_change``."""

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the log start offset and the log end offset.

        :raise KafkaError: NOT_LEADER_OR_FOLLOWER.
        """

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return a lower bound on the first offset with this or a later timestamp; without one, the log end offset.

        :raise KafkaError: NOT_LEADER_OR_FOLLOWER.
        """

    def read(self, partition: TopicPartition, offset: int) -> Deferred[Sequence[LogBatch]]:
        """Read about one megabyte of batches from an offset, in a thread; the result is empty at the log end.

        Fails with KafkaError: NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """

    def append(self, partition: TopicPartition, records: Sequence[LogRecord]) -> int:
        """Append one batch to the local log under the rules of ``acks=all``; the batch is committed later.

        :return: the offset of the first record; the ``offset`` fields of the records are ignored.
        :raise KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS or any other error of a produce request.
        """


class BrokerView(Protocol):
    """The broker, as plugins see it."""

    @property
    def broker_id(self) -> int:
        """The ID of this broker."""

    @property
    def led(self) -> LedPartitions:
        """The partitions that this broker leads."""

    def not_ready(self) -> list[str]:
        """Return the reasons why the broker cannot serve clients, as sentences; empty if it can."""

    def topics(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic in the broker's metadata cache."""

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return the value of a topic setting by Kafka's name; None if it does not exist or has no value."""

    def produce(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Deferred[int]:
        """Send one record to the partition's leader with ``acks=all``; fires with its offset.

        Fails with KafkaError; after a connection error the record may or may not be in the log.
        """


class PluginContext(NamedTuple):
    """Argument of a plugin's factory.

    :param settings: the plugin's own settings without the prefix ``kreplica.plugin.NAME.``; not validated.
    :param broker: usable once a method of the plugin is called; the factory may use only ``broker_id`` and
        ``led.follow``.
    """

    name: str
    settings: Mapping[str, str]
    runtime: Runtime
    broker: BrokerView
