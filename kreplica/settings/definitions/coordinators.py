"""Consumer groups, committed offsets, and producers that send once or in transactions."""

from __future__ import annotations

from kreplica.settings.definitions.words import (
    AT_START,
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    SHORT,
    STRING,
    Row,
    known_only,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, EachOneOf, OneOf, at_least, between

CONSUMER_ASSIGNORS = (
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
MIGRATION_POLICIES = OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True)
GROUP_PROTOCOLS = EachOneOf(("consumer", "classic", "share", "unknown"))
LOADED_IN_PIECES = "a megabyte is read at a time"

PRODUCERS = (
    Setting(
        "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, READ_ONLY,
        "How often partitions look for idempotent producers to forget.",
        listed=False,
    ),
    Setting(
        "producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, AT_START,
        "How long a partition remembers an idempotent producer that sends nothing.",
    ),
)
"""Idempotent producers."""

GROUPS = (
    Setting(
        "group.initial.rebalance.delay.ms", INT, 3000, ANY, MEDIUM, READ_ONLY,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    Setting(
        "group.max.session.timeout.ms", INT, 1_800_000, ANY, MEDIUM, READ_ONLY,
        "The longest session that a member of a group may ask for.",
    ),
    Setting(
        "group.max.size", INT, 2**31 - 1, at_least(1), MEDIUM, READ_ONLY,
        "How many members one group may have.",
    ),
    Setting(
        "group.min.session.timeout.ms", INT, 6000, ANY, MEDIUM, READ_ONLY,
        "The shortest session that a member of a group may ask for.",
    ),
    Setting(
        "offset.metadata.max.bytes", INT, 4096, ANY, HIGH, READ_ONLY,
        "The longest text that may be committed along with an offset.",
    ),
    Setting(
        "offsets.commit.required.acks", SHORT, -1, ANY, HIGH, READ_ONLY,
        "How many replicas a commit of offsets waits for; -1 is all that are in sync.",
        instead="a commit of offsets waits for all that are in sync",
    ),
    Setting(
        "offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH, READ_ONLY,
        "How long a commit of offsets waits for its replicas.",
    ),
    Setting(
        "offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, READ_ONLY,
        "How many bytes are read at a time when committed offsets are loaded.",
        instead=LOADED_IN_PIECES,
    ),
    Setting(
        "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH, READ_ONLY,
        "How often expired offsets are looked for.",
    ),
    Setting(
        "offsets.retention.minutes", INT, 10_080, at_least(1), HIGH, READ_ONLY,
        "How long the offsets of a group without members are kept.",
    ),
    Setting(
        "offsets.topic.compression.codec", INT, 0, ANY, HIGH, READ_ONLY,
        "The codec of the topic of committed offsets, by number: 0 is none.",
    ),
    Setting(
        "offsets.topic.num.partitions", INT, 50, at_least(1), HIGH, READ_ONLY,
        "How many partitions the topic of committed offsets has; it must not change once that topic exists.",
    ),
    Setting(
        "offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH, READ_ONLY,
        "How many replicas the topic of committed offsets has.",
    ),
    Setting(
        "offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The size of a segment of the topic of committed offsets.",
    ),
    Setting(
        "group.consumer.assignors", LIST, CONSUMER_ASSIGNORS, ANY, MEDIUM, READ_ONLY,
        "How partitions may be shared out in groups of KIP-848: uniform, range; the first is default.",
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, READ_ONLY,
        "How often members of groups of KIP-848 are told to send heartbeats.",
    ),
    Setting(
        "group.consumer.max.size", INT, 2**31 - 1, at_least(1), MEDIUM, READ_ONLY,
        "How many members one group of KIP-848 may have.",
    ),
    Setting(
        "group.consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, READ_ONLY,
        "A member of a group of KIP-848 that is not heard of for so long has died.",
    ),
    Setting(
        "group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), GROUP_PROTOCOLS, MEDIUM, READ_ONLY,
        "Whether groups of KIP-848 are served: if it names consumer; classic groups always are.",
    ),
    *known_only(
        "groups have no settings of their own",
        Row("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, READ_ONLY),
    ),
    *known_only(
        "a group changes its protocol only while it has no members",
        Row(
            "group.consumer.migration.policy", STRING, "disabled", MIGRATION_POLICIES, MEDIUM, READ_ONLY, listed=False,
        ),
    ),
    *known_only(
        "there is one coordinator, on the broker's reactor; what it decides in one turn is written together",
        Row("group.coordinator.append.linger.ms", INT, 10, at_least(0), MEDIUM, READ_ONLY),
        Row("group.coordinator.new.enable", BOOLEAN, False, ANY, MEDIUM, READ_ONLY, listed=False),
        Row("group.coordinator.threads", INT, 1, at_least(1), MEDIUM, READ_ONLY),
    ),
    *known_only(
        "there are no share groups",
        Row("group.share.delivery.count.limit", INT, 5, between(2, 10), MEDIUM, READ_ONLY),
        Row("group.share.enable", BOOLEAN, False, ANY, MEDIUM, READ_ONLY, listed=False),
        Row("group.share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.share.max.groups", SHORT, 10, between(1, 100), MEDIUM, READ_ONLY),
        Row("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000), MEDIUM, READ_ONLY),
        Row("group.share.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.share.max.size", SHORT, 200, between(10, 1000), MEDIUM, READ_ONLY),
        Row("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000), MEDIUM, READ_ONLY),
        Row("group.share.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.share.partition.max.record.locks", INT, 200, between(100, 10_000), MEDIUM, READ_ONLY),
        Row("group.share.record.lock.duration.ms", INT, 30_000, between(1000, 60_000), MEDIUM, READ_ONLY),
        Row("group.share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, READ_ONLY),
    ),
)
"""Consumer groups and committed offsets."""

TRANSACTIONS = (
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), LOW, READ_ONLY,
        "How often transactions that took too long are looked for and aborted.",
    ),
    Setting(
        "transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH, READ_ONLY,
        "The longest transaction that a producer may ask for.",
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often expired transactional ids are looked for.",
    ),
    Setting(
        "transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, READ_ONLY,
        "How many bytes are read at a time when transactions are loaded.",
        instead=LOADED_IN_PIECES,
    ),
    Setting(
        "transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, READ_ONLY,
        "min.insync.replicas of the topic of transactions.",
    ),
    Setting(
        "transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH, READ_ONLY,
        "How many partitions the topic of transactions has; it must not change once that topic exists.",
    ),
    Setting(
        "transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH, READ_ONLY,
        "How many replicas the topic of transactions has.",
    ),
    Setting(
        "transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The size of a segment of the topic of transactions.",
    ),
    Setting(
        "transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH, READ_ONLY,
        "How long a transactional id that is not used is remembered.",
    ),
    Setting(
        "transaction.two.phase.commit.enable", BOOLEAN, False, ANY, LOW, READ_ONLY,
        "Whether producers may prepare transactions that do not time out, and end them after a restart.",
    ),
    Setting(
        "transaction.partition.verification.enable", BOOLEAN, True, ANY, LOW, CLUSTER_WIDE,
        "Whether partitions ask the coordinator before they take the first batch of a transaction.",
    ),
)
"""Transactions."""
