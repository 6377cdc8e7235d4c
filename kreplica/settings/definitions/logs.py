"""Settings of logs on disk (segments, retention, compaction, flushing) and defaults of topic settings."""

from __future__ import annotations

import sys

from kreplica.settings.definitions.helpers import (
    AT_START,
    BOOLEAN,
    CLUSTER_WIDE,
    CODECS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    TIMESTAMP_TYPES,
    Row,
    not_implemented,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, EachOneOf, Range, ReleaseVersion, at_least, between

STORAGE = (
    Setting(
        "compression.type", STRING, "producer", CODECS, HIGH, CLUSTER_WIDE,
        "Default of the topic setting compression.type; producer keeps the producer's compression.",
    ),
    Setting(
        "log.dir", STRING, "/tmp/kafka-logs", ANY, HIGH, READ_ONLY,
        "The log directory, used if log.dirs is not set.",
    ),
    Setting(
        "log.dirs", STRING, None, ANY, HIGH, READ_ONLY,
        "The log directories, separated by commas; defaults to log.dir.",
    ),
    Setting(
        "log.flush.interval.messages", LONG, 2**63 - 1, at_least(1), HIGH, CLUSTER_WIDE,
        "Default of the topic setting flush.messages.",
    ),
    Setting(
        "log.flush.interval.ms", LONG, None, ANY, HIGH, CLUSTER_WIDE,
        "Default of the topic setting flush.ms.",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH, READ_ONLY,
        "How often the flushed offset (recovery point) and the log start offset of each log are checkpointed.",
    ),
    Setting(
        "log.flush.scheduler.interval.ms", LONG, 2**63 - 1, ANY, HIGH, READ_ONLY,
        "How often logs are checked for records to flush; also the default of flush.ms if log.flush.interval.ms is "
        "not set.",
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH, READ_ONLY,
        "How often the log start offset of each log is checkpointed.",
        actual_behavior="log start offsets are checkpointed every log.flush.offset.checkpoint.interval.ms",
    ),
    Setting(
        "log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting index.interval.bytes.",
    ),
    Setting(
        "log.index.size.max.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting segment.index.bytes.",
    ),
    Setting(
        "log.message.timestamp.after.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting message.timestamp.after.max.ms.",
    ),
    Setting(
        "log.message.timestamp.before.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting message.timestamp.before.max.ms.",
    ),
    Setting(
        "log.message.timestamp.difference.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting message.timestamp.difference.max.ms.",
    ),
    Setting(
        "log.message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting message.timestamp.type.",
    ),
    Setting(
        "log.preallocate", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting preallocate.",
    ),
    Setting(
        "log.roll.hours", INT, 168, at_least(1), HIGH, READ_ONLY,
        "Default of the topic setting segment.ms in hours, if log.roll.ms is not set.",
    ),
    Setting(
        "log.roll.jitter.hours", INT, 0, at_least(0), HIGH, READ_ONLY,
        "Default of the topic setting segment.jitter.ms in hours, if log.roll.jitter.ms is not set.",
    ),
    Setting(
        "log.roll.jitter.ms", LONG, None, ANY, HIGH, CLUSTER_WIDE,
        "Default of the topic setting segment.jitter.ms.",
    ),
    Setting(
        "log.roll.ms", LONG, None, ANY, HIGH, CLUSTER_WIDE,
        "Default of the topic setting segment.ms.",
    ),
    Setting(
        "log.segment.bytes", INT, 2**30, at_least(14), HIGH, CLUSTER_WIDE,
        "Default of the topic setting segment.bytes.",
    ),
    Setting(
        "log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH, CLUSTER_WIDE,
        "Default of the topic setting file.delete.delay.ms.",
    ),
    Setting(
        "message.max.bytes", INT, 1_048_588, at_least(0), HIGH, CLUSTER_WIDE,
        "Default of the topic setting max.message.bytes.",
    ),
    Setting(
        "min.insync.replicas", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "Default of the topic setting min.insync.replicas.",
    ),
    Setting(
        "num.recovery.threads.per.data.dir", INT, 1, at_least(1), HIGH, AT_START,
        "The number of threads per log directory that open logs at startup and close them at shutdown.",
        actual_behavior="the broker's thread pool, which has a fixed size, opens the logs",
    ),
    *not_implemented(
        "codecs compress at their default level",
        Row("compression.gzip.level", INT, -1, Range(1, 9, special_value=-1), MEDIUM, CLUSTER_WIDE),
        Row("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE),
        Row("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE),
    ),
    *not_implemented(
        "tiered storage is not supported; log.retention.ms and log.retention.bytes apply",
        Row("log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE),
        Row("log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE),
    ),
    *not_implemented(
        "records are returned in the stored format, which every supported version of Fetch can read",
        Row("log.message.downconversion.enable", BOOLEAN, True, ANY, LOW, CLUSTER_WIDE),
    ),
    *not_implemented(
        "records are stored in message format 2, as in Apache Kafka 3.0 and later",
        Row("log.message.format.version", STRING, "3.0-IV1", ReleaseVersion(), MEDIUM, READ_ONLY),
    ),
    *not_implemented(
        "a log directory that fails goes offline immediately",
        Row("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY),
    ),
    *not_implemented(
        "retention and flushing first run one interval after startup",
        Row("log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW, READ_ONLY, listed=False),
    ),
)
"""Directories, segments, flushing and record formats."""

RETENTION = (
    Setting(
        "log.cleaner.backoff.ms", LONG, 15_000, at_least(0), MEDIUM, AT_START,
        "How long compaction waits if there is nothing to compact.",
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, ANY, MEDIUM, AT_START,
        "The maximum memory for the table of keys (offset map) that compaction uses.",
    ),
    Setting(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting delete.retention.ms.",
    ),
    Setting(
        "log.cleaner.enable", BOOLEAN, True, ANY, MEDIUM, READ_ONLY,
        "Whether compacted topics are compacted.",
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms", LONG, 2**63 - 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting max.compaction.lag.ms.",
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting min.cleanable.dirty.ratio.",
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting min.compaction.lag.ms.",
    ),
    Setting(
        "log.cleaner.threads", INT, 1, at_least(0), MEDIUM, AT_START,
        "How many threads compact logs.",
        actual_behavior="compaction runs in the broker's thread pool, which has a fixed size",
    ),
    Setting(
        "log.cleanup.policy", LIST, ("delete",), EachOneOf(("compact", "delete")), MEDIUM, CLUSTER_WIDE,
        "Default of the topic setting cleanup.policy.",
    ),
    Setting(
        "log.retention.bytes", LONG, -1, ANY, HIGH, CLUSTER_WIDE,
        "Default of the topic setting retention.bytes, which limits each partition, not the broker; -1 means "
        "unlimited.",
    ),
    Setting(
        "log.retention.check.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY,
        "How often logs are checked for segments that retention removes.",
    ),
    Setting(
        "log.retention.hours", INT, 168, ANY, HIGH, READ_ONLY,
        "Default of the topic setting retention.ms in hours, if neither log.retention.ms nor "
        "log.retention.minutes is set; -1 means unlimited.",
    ),
    Setting(
        "log.retention.minutes", INT, None, ANY, HIGH, READ_ONLY,
        "Default of the topic setting retention.ms in minutes, if log.retention.ms is not set; -1 means unlimited.",
    ),
    Setting(
        "log.retention.ms", LONG, None, ANY, HIGH, CLUSTER_WIDE,
        "Default of the topic setting retention.ms; -1 means unlimited.",
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, sys.float_info.max, ANY, MEDIUM, AT_START,
        "The maximum bytes per second that compaction reads and writes.",
    ),
    *not_implemented(
        "the buffer sizes of compaction are not configurable",
        Row("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, ANY, MEDIUM, CLUSTER_WIDE),
        Row("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), MEDIUM, CLUSTER_WIDE),
    ),
)
"""Retention and compaction."""
