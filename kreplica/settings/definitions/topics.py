"""Topic settings; the default of each is the first of its ``synonyms`` that is set on the broker."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
    BOOLEAN,
    CLUSTER_WIDE,
    CODECS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    TIMESTAMP_TYPES,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import (
    ANY,
    EachOneOf,
    Range,
    ReleaseVersion,
    ThrottledReplicas,
    at_least,
    between,
)

TOPIC = (
    Setting(
        "cleanup.policy", LIST, ("delete",), EachOneOf(("compact", "delete")), MEDIUM, CLUSTER_WIDE,
        "The policy for old records: delete removes whole segments by age and size, compact keeps the last value of "
        "each key; both may be set.",
        synonyms=("log.cleanup.policy",),
    ),
    Setting(
        "compression.gzip.level", INT, -1, Range(1, 9, special_value=-1), MEDIUM, CLUSTER_WIDE,
        actual_behavior="gzip compresses at its default level",
        synonyms=("compression.gzip.level",),
    ),
    Setting(
        "compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE,
        actual_behavior="lz4 compresses at its default level",
        synonyms=("compression.lz4.level",),
    ),
    Setting(
        "compression.type", STRING, "producer", CODECS, MEDIUM, CLUSTER_WIDE,
        "The codec of stored record batches: producer keeps the producer's compression, any other value recompresses.",
        synonyms=("compression.type",),
    ),
    Setting(
        "compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        actual_behavior="zstd compresses at its default level",
        synonyms=("compression.zstd.level",),
    ),
    Setting(
        "delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a record without a value (a tombstone) stays in a compacted topic after compaction has reached it.",
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    Setting(
        "file.delete.delay.ms", LONG, 60_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long the files of a removed segment stay on disk, renamed, before they are deleted.",
        synonyms=("log.segment.delete.delay.ms",),
    ),
    Setting(
        "flush.messages", LONG, 2**63 - 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The number of records after which the log is flushed to disk; with 1, every acknowledgement waits for a "
        "flush, which concurrent requests share.",
        synonyms=("log.flush.interval.messages",),
    ),
    Setting(
        "flush.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a record may stay in memory before the log is flushed to disk.",
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    Setting(
        "follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "The replicas that are limited to their brokers' follower.replication.throttled.rate until they are in sync, "
        "as partition:broker, or * for all.",
    ),
    Setting(
        "index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The bytes of records between two entries of the offset index; a smaller value makes lookups faster and the "
        "index larger.",
        synonyms=("log.index.interval.bytes",),
    ),
    Setting(
        "leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "The leaders that are limited to their brokers' leader.replication.throttled.rate when they send to replicas "
        "that are not in sync, as partition:broker, or * for all.",
    ),
    Setting(
        "local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        actual_behavior="tiered storage is not supported; retention.bytes applies",
        synonyms=("log.local.retention.bytes",),
    ),
    Setting(
        "local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        actual_behavior="tiered storage is not supported; retention.ms applies",
        synonyms=("log.local.retention.ms",),
    ),
    Setting(
        "max.compaction.lag.ms", LONG, 2**63 - 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The maximum time that a record may stay uncompacted in a compacted topic.",
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    Setting(
        "max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a record batch after compression.",
        synonyms=("message.max.bytes",),
    ),
    Setting(
        "message.downconversion.enable", BOOLEAN, True, ANY, LOW, CLUSTER_WIDE,
        actual_behavior="records are returned in the stored format, which every supported version of Fetch can read",
        synonyms=("log.message.downconversion.enable",),
    ),
    Setting(
        "message.format.version", STRING, "3.0-IV1", ReleaseVersion(), MEDIUM, CLUSTER_WIDE,
        actual_behavior="records are stored in message format 2, as in Apache Kafka 3.0 and later",
        synonyms=("log.message.format.version",),
    ),
    Setting(
        "message.timestamp.after.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may be ahead of the broker's clock before the record is rejected.",
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    Setting(
        "message.timestamp.before.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may be behind the broker's clock before the record is rejected.",
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    Setting(
        "message.timestamp.difference.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Deprecated: used as message.timestamp.before.max.ms and as message.timestamp.after.max.ms if these have "
        "their default values.",
        synonyms=("log.message.timestamp.difference.max.ms",),
    ),
    Setting(
        "message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM, CLUSTER_WIDE,
        "The clock that sets record timestamps: CreateTime is the producer's, LogAppendTime the broker's.",
        synonyms=("log.message.timestamp.type",),
    ),
    Setting(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "The minimum uncompacted fraction of a log before it is compacted.",
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    Setting(
        "min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time that a record stays uncompacted, so that consumers can read every change.",
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    Setting(
        "min.insync.replicas", INT, 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The minimum number of in-sync replicas, at most the replication factor. With fewer, produce requests with "
        "acks=all are rejected and the high watermark does not advance.",
        synonyms=("min.insync.replicas",),
    ),
    Setting(
        "preallocate", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        "Whether disk space is preallocated when a segment is created.",
        synonyms=("log.preallocate",),
    ),
    Setting(
        "remote.log.copy.disable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        actual_behavior="tiered storage is not supported",
    ),
    Setting(
        "remote.log.delete.on.disable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        actual_behavior="tiered storage is not supported",
    ),
    Setting(
        "remote.storage.enable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        actual_behavior="tiered storage is not supported",
    ),
    Setting(
        "retention.bytes", LONG, -1, ANY, MEDIUM, CLUSTER_WIDE,
        "The size of a partition beyond which its oldest segments are removed; -1 means unlimited.",
        synonyms=("log.retention.bytes",),
    ),
    Setting(
        "retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM, CLUSTER_WIDE,
        "The age of a segment's newest record beyond which the segment is removed; -1 means unlimited.",
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    Setting(
        "segment.bytes", INT, 2**30, at_least(14), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a segment file; retention and compaction work on whole segments.",
        synonyms=("log.segment.bytes",),
    ),
    Setting(
        "segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a segment's offset index; when it is full, the log rolls a new segment.",
        synonyms=("log.index.size.max.bytes",),
    ),
    Setting(
        "segment.jitter.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum random reduction of segment.ms, so that segments do not roll at the same time.",
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    Setting(
        "segment.ms", LONG, 604_800_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The time after which the log rolls a new segment even if the current one is not full.",
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    Setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        "Whether a replica that may lack acknowledged records can become leader if no in-sync or eligible replica is "
        "alive; those records are lost.",
        synonyms=("unclean.leader.election.enable",),
    ),
)
"""All topic settings of Apache Kafka 3.9."""
