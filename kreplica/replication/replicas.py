"""Replicas of a broker: creation from their logs, lookup and removal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from uuid import UUID

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.replication.leader.leader_state import LeaderContext
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.partition_dependencies import PartitionSettings
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.producers.rejected_batches import RejectionsWithoutLog


class Replicas:
    """Partitions whose logs this process has opened in the broker's log directories.

    :param settings_of: returns a topic's current settings.
    :ivar get: returns a partition, or None.
    :ivar rejected_without_log: producers whose batches were rejected because the replica was not open.
    """

    def __init__(
        self,
        directories: LogDirectories,
        context: LeaderContext,
        settings_of: Callable[[str], PartitionSettings],
    ) -> None:
        self.rejected_without_log = RejectionsWithoutLog()
        self._directories = directories
        self._context = context
        self._settings_of = settings_of
        self._partitions: dict[TopicPartition, Partition] = {}
        # The dictionary's own method saves one call for each partition of a request.
        self.get: Callable[[TopicPartition], Partition | None] = self._partitions.get
        self._by_topic: dict[str, dict[int, Partition]] = defaultdict(dict)
        self._names: dict[UUID, str] = {}
        self._observers: dict[str, Callable[[Partition], None]] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def observe(self, topic: str, role_changed: Callable[[Partition], None]) -> None:
        """Register a callback for role changes of a topic's partitions; call it before any partition is opened."""
        self._observers[topic] = role_changed

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic with a partition on this broker, or None."""
        return self._names.get(topic_id)

    def of_topic(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic."""
        return list(self._by_topic.get(topic, {}).values())

    def open(self, key: TopicPartition, leadership: Leadership) -> Partition:
        """Open a partition, and create its log if it has none.

        :raise StorageError: the log may be in a log directory that is offline, or cannot be opened.
        :raise OSError: the device failed.
        """
        settings = self._settings_of(key.topic)
        opened = self._directories.logs.get(key)
        if opened is None:
            if self.may_be_offline(leadership):
                raise StorageError(f"{key} may be in a log directory that has been offline since startup")
            opened = self._directories.create(key, leadership.topic_id, settings.log)
        key = opened.topic_partition  # one object for the log and the partition
        opened.config = settings.log
        rejections = self.rejected_without_log.pop(key)
        if rejections is not None:
            opened.producers.rejections.add_missing(rejections)
        partition = Partition(
            key,
            self._directories.topic_id(key) or leadership.topic_id,
            opened,
            self._context,
            high_watermark=self._directories.high_watermark(key),
            min_insync_replicas=settings.min_insync_replicas,
            role_changed=self._observers.get(key.topic),
        )
        self._partitions[key] = self._by_topic[key.topic][key.partition] = partition
        if partition.topic_id != ZERO_UUID:
            self._names[partition.topic_id] = key.topic
        return partition

    def may_be_offline(self, leadership: Leadership) -> bool:
        """True if a missing log may be in a directory that could not be read at startup (KIP-112).

        A new log in another directory would be a duplicate once that directory is available again.
        """
        return self._directories.may_have_unknown_logs and not leadership.is_new

    def remove(self, key: TopicPartition) -> None:
        """Remove a partition whose log was deleted or replaced."""
        topic_id = self._partitions.pop(key).topic_id
        of_topic = self._by_topic[key.topic]
        del of_topic[key.partition]
        if not of_topic:
            del self._by_topic[key.topic]
            self._names.pop(topic_id, None)


def check_topic_id(partition: Partition, topic_id: UUID) -> None:
    """Raise INCONSISTENT_TOPIC_ID if the partition's log belongs to an earlier topic of that name."""
    if ZERO_UUID in (topic_id, partition.topic_id) or topic_id == partition.topic_id:
        return
    raise KafkaError(
        ErrorCode.INCONSISTENT_TOPIC_ID,
        f"{partition.topic_partition} on disk belongs to the topic ID {partition.topic_id}, "
        f"but the controller sent {topic_id}",
    )
