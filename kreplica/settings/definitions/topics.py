"""What one topic may be told; each has its default from the broker's setting that it names first among those set."""

from __future__ import annotations

from kreplica.settings.definitions.words import (
    BOOLEAN,
    CLOCKS,
    CLUSTER_WIDE,
    CODECS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
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
        "What becomes of old records: delete removes whole segments by age and size, compact keeps the last value of "
        "each key; both may be given.",
        synonyms=("log.cleanup.policy",),
    ),
    Setting(
        "compression.gzip.level", INT, -1, Range(1, 9, also=-1), MEDIUM, CLUSTER_WIDE,
        instead="gzip compresses with its default level",
        synonyms=("compression.gzip.level",),
    ),
    Setting(
        "compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE,
        instead="lz4 compresses with its default level",
        synonyms=("compression.lz4.level",),
    ),
    Setting(
        "compression.type", STRING, "producer", CODECS, MEDIUM, CLUSTER_WIDE,
        "How the broker stores record batches: as the producer sent them, or compressed anew with the named codec.",
        synonyms=("compression.type",),
    ),
    Setting(
        "compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        instead="zstd compresses with its default level",
        synonyms=("compression.zstd.level",),
    ),
    Setting(
        "delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a record without a value (a tombstone) stays on a compacted topic after compaction has reached it.",
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    Setting(
        "file.delete.delay.ms", LONG, 60_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long the files of a removed segment stay on disk, renamed, before they are deleted.",
        synonyms=("log.segment.delete.delay.ms",),
    ),
    Setting(
        "flush.messages", LONG, 2**63 - 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "After how many records the log is synced to disk; 1 makes every acknowledgement wait for the sync, which "
        "many requests share.",
        synonyms=("log.flush.interval.messages",),
    ),
    Setting(
        "flush.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a record may stay in memory before the log is synced to disk.",
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    Setting(
        "follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "Which replicas fetch no faster than their brokers' follower.replication.throttled.rate until they are in "
        "sync: partition:broker each, or * for all.",
    ),
    Setting(
        "index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How many bytes of records lie between two entries of the offset index: smaller finds an offset faster and "
        "takes more space.",
        synonyms=("log.index.interval.bytes",),
    ),
    Setting(
        "leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "Which leaders send to replicas that are not in sync no faster than their brokers' "
        "leader.replication.throttled.rate: partition:broker each, or * for all.",
    ),
    Setting(
        "local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        instead="there is no tiered storage, retention.bytes holds for everything",
        synonyms=("log.local.retention.bytes",),
    ),
    Setting(
        "local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        instead="there is no tiered storage, retention.ms holds for everything",
        synonyms=("log.local.retention.ms",),
    ),
    Setting(
        "max.compaction.lag.ms", LONG, 2**63 - 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "How long a record may at most stay uncompacted on a compacted topic.",
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    Setting(
        "max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The largest record batch that the topic takes, after compression.",
        synonyms=("message.max.bytes",),
    ),
    Setting(
        "message.downconversion.enable", BOOLEAN, True, ANY, LOW, CLUSTER_WIDE,
        instead="records are served in the format in which they are stored, which every served version of Fetch reads",
        synonyms=("log.message.downconversion.enable",),
    ),
    Setting(
        "message.format.version", STRING, "3.0-IV1", ReleaseVersion(), MEDIUM, CLUSTER_WIDE,
        instead="records are stored in message format 2, as Apache Kafka does from 3.0 on",
        synonyms=("log.message.format.version",),
    ),
    Setting(
        "message.timestamp.after.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may lie ahead of the broker's clock before the record is refused.",
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    Setting(
        "message.timestamp.before.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may lie behind the broker's clock before the record is refused.",
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    Setting(
        "message.timestamp.difference.max.ms", LONG, 2**63 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The older name of message.timestamp.before.max.ms, obeyed where that one is left at its default.",
        synonyms=("log.message.timestamp.difference.max.ms",),
    ),
    Setting(
        "message.timestamp.type", STRING, "CreateTime", CLOCKS, MEDIUM, CLUSTER_WIDE,
        "Whose clock stamps a record: CreateTime is the producer, LogAppendTime the broker.",
        synonyms=("log.message.timestamp.type",),
    ),
    Setting(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "What part of a log must be uncompacted before compaction takes it.",
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    Setting(
        "min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a record stays uncompacted at least, so that readers can see every change.",
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    Setting(
        "min.insync.replicas", INT, 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "How many replicas must be in sync for a produce with acks=all to be taken.",
        synonyms=("min.insync.replicas",),
    ),
    Setting(
        "preallocate", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        "Whether the space of a new segment is reserved on disk when the segment is made.",
        synonyms=("log.preallocate",),
    ),
    Setting(
        "remote.log.copy.disable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        instead="there is no tiered storage",
    ),
    Setting(
        "remote.log.delete.on.disable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        instead="there is no tiered storage",
    ),
    Setting(
        "remote.storage.enable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        instead="there is no tiered storage, everything stays in log.dirs",
    ),
    Setting(
        "retention.bytes", LONG, -1, ANY, MEDIUM, CLUSTER_WIDE,
        "How large a partition may grow before its oldest segments are removed; -1 is without bound.",
        synonyms=("log.retention.bytes",),
    ),
    Setting(
        "retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM, CLUSTER_WIDE,
        "How old the newest record of a segment may become before the segment is removed; -1 is without bound.",
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    Setting(
        "segment.bytes", INT, 2**30, at_least(14), MEDIUM, CLUSTER_WIDE,
        "The largest size of one segment file: retention and compaction work on whole segments.",
        synonyms=("log.segment.bytes",),
    ),
    Setting(
        "segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "The largest size of a segment's offset index; a full index makes the log roll a new segment.",
        synonyms=("log.index.size.max.bytes",),
    ),
    Setting(
        "segment.jitter.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "At most how much is taken off segment.ms at random, so that segments do not all roll at once.",
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    Setting(
        "segment.ms", LONG, 604_800_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "After how long a new segment is begun even where the current one is not full.",
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    Setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY, MEDIUM, CLUSTER_WIDE,
        "Whether a replica that is not in sync may lead where no other is alive, which loses records.",
        synonyms=("unclean.leader.election.enable",),
    ),
)
"""Every setting that a topic of Apache Kafka 3.9 may have."""
