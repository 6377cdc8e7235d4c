"""Derives the settings of partitions and logs from a topic's effective settings."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.settings.dynamic import TopicSettings
from kreplica.storage.log_config import LogConfig


class PartitionSettings(NamedTuple):
    """Settings of a topic's partitions.

    :param leader_throttled_replicas: ``partition:broker`` each, or ``*``; see ``kreplica.replication.throttle``.
    """

    log: LogConfig
    min_insync_replicas: int
    unclean_election_allowed: bool = False
    leader_throttled_replicas: frozenset[str] = frozenset()
    follower_throttled_replicas: frozenset[str] = frozenset()


def partition_settings(settings: TopicSettings) -> PartitionSettings:
    """Return the partition settings for the effective settings of a topic."""
    return PartitionSettings(
        LogConfig(
            segment_bytes=settings["segment.bytes"],
            segment_ms=settings["segment.ms"],
            segment_jitter_ms=settings["segment.jitter.ms"],
            index_interval_bytes=settings["index.interval.bytes"],
            segment_index_bytes=settings["segment.index.bytes"],
            retention_ms=settings["retention.ms"],
            retention_bytes=settings["retention.bytes"],
            delete_retention_ms=settings["delete.retention.ms"],
            min_compaction_lag_ms=settings["min.compaction.lag.ms"],
            max_compaction_lag_ms=settings["max.compaction.lag.ms"],
            min_cleanable_dirty_ratio=settings["min.cleanable.dirty.ratio"],
            file_delete_delay_ms=settings["file.delete.delay.ms"],
            flush_messages=settings["flush.messages"],
            flush_ms=settings["flush.ms"],
            max_message_bytes=settings["max.message.bytes"],
            cleanup_policy=frozenset(settings["cleanup.policy"]),
            message_timestamp_type=settings["message.timestamp.type"],
            message_timestamp_before_max_ms=settings["message.timestamp.before.max.ms"],
            message_timestamp_after_max_ms=settings["message.timestamp.after.max.ms"],
            compression_type=settings["compression.type"],
            preallocate=settings["preallocate"],
        ),
        settings["min.insync.replicas"],
        bool(settings["unclean.leader.election.enable"]),
        frozenset(settings["leader.replication.throttled.replicas"]),
        frozenset(settings["follower.replication.throttled.replicas"]),
    )
