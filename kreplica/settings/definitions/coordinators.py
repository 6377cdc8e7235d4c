"""Settings of idempotent producers, consumer groups, committed offsets and transactions."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
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
    not_implemented,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, EachOneOf, OneOf, at_least, between

CONSUMER_ASSIGNORS = (
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
MIGRATION_POLICIES = OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True)
GROUP_PROTOCOLS = EachOneOf(("consumer", "classic", "share", "unknown"))
LOADED_IN_CHUNKS = "the log is read in chunks of 1 MiB"

PRODUCERS = (
    Setting(
        "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, READ_ONLY,
        "How often partitions check for expired idempotent producers.",
        actual_behavior="the retention check removes expired producers, every log.retention.check.interval.ms",
        listed=False,
    ),
    Setting(
        "producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, AT_START,
        "How long a partition keeps the state of an idle idempotent producer.",
    ),
)
"""Idempotent producers."""

GROUPS = (
    Setting(
        "group.initial.rebalance.delay.ms", INT, 3000, ANY, MEDIUM, READ_ONLY,
        "How long an empty classic group waits for more members before its first rebalance.",
    ),
    Setting(
        "group.max.session.timeout.ms", INT, 1_800_000, ANY, MEDIUM, READ_ONLY,
        "The maximum session timeout that a member of a classic group may request.",
    ),
    Setting(
        "group.max.size", INT, 2**31 - 1, at_least(1), MEDIUM, READ_ONLY,
        "The maximum number of members of a classic group; further members receive GROUP_MAX_SIZE_REACHED. For "
        "consumer groups (KIP-848), see group.consumer.max.size.",
    ),
    Setting(
        "group.min.session.timeout.ms", INT, 6000, ANY, MEDIUM, READ_ONLY,
        "The minimum session timeout that a member of a classic group may request.",
    ),
    Setting(
        "offset.metadata.max.bytes", INT, 4096, ANY, HIGH, READ_ONLY,
        "The maximum length of the metadata committed with an offset, in characters, as in Kafka.",
    ),
    Setting(
        "offsets.commit.required.acks", SHORT, -1, ANY, HIGH, READ_ONLY,
        "How many replicas an offset commit waits for; -1 means all in-sync replicas.",
        actual_behavior="an offset commit waits for all in-sync replicas",
    ),
    Setting(
        "offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH, READ_ONLY,
        "How long an offset commit waits for replication.",
    ),
    Setting(
        "offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, READ_ONLY,
        "The number of bytes per read when committed offsets are loaded.",
        actual_behavior=LOADED_IN_CHUNKS,
    ),
    Setting(
        "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH, READ_ONLY,
        "How often the coordinator checks for expired offsets.",
    ),
    Setting(
        "offsets.retention.minutes", INT, 10_080, at_least(1), HIGH, READ_ONLY,
        "How long the offsets of an empty group are kept.",
    ),
    Setting(
        "offsets.topic.compression.codec", INT, 0, ANY, HIGH, READ_ONLY,
        "The compression codec of __consumer_offsets, by number; 0 means uncompressed.",
    ),
    Setting(
        "offsets.topic.num.partitions", INT, 50, at_least(1), HIGH, READ_ONLY,
        "The number of partitions of __consumer_offsets; must not change after the topic has been created.",
    ),
    Setting(
        "offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH, READ_ONLY,
        "The replication factor of __consumer_offsets.",
    ),
    Setting(
        "offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The segment size of __consumer_offsets.",
    ),
    Setting(
        "group.consumer.assignors", LIST, CONSUMER_ASSIGNORS, ANY, MEDIUM, READ_ONLY,
        "The assignors of consumer groups (KIP-848): uniform, range; the first is the default.",
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, READ_ONLY,
        "The heartbeat interval of members of consumer groups (KIP-848).",
    ),
    Setting(
        "group.consumer.max.size", INT, 2**31 - 1, at_least(1), MEDIUM, READ_ONLY,
        "The maximum number of members of a consumer group (KIP-848).",
    ),
    Setting(
        "group.consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, READ_ONLY,
        "The session timeout of consumer groups (KIP-848): a member without a heartbeat for this time is removed.",
    ),
    Setting(
        "group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), GROUP_PROTOCOLS, MEDIUM, READ_ONLY,
        "The enabled group protocols. Consumer groups (KIP-848) are enabled only if the list contains consumer; "
        "classic groups are always enabled.",
    ),
    *not_implemented(
        "groups have no settings of their own to which these limits could apply",
        Row("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, READ_ONLY),
        Row("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, READ_ONLY),
    ),
    *not_implemented(
        "a group changes its protocol only while it has no members",
        Row(
            "group.consumer.migration.policy", STRING, "disabled", MIGRATION_POLICIES, MEDIUM, READ_ONLY, listed=False,
        ),
    ),
    *not_implemented(
        "there is one group coordinator, on the reactor; it writes the records of one reactor iteration together",
        Row("group.coordinator.append.linger.ms", INT, 10, at_least(0), MEDIUM, READ_ONLY),
        Row("group.coordinator.new.enable", BOOLEAN, False, ANY, MEDIUM, READ_ONLY, listed=False),
        Row("group.coordinator.threads", INT, 1, at_least(1), MEDIUM, READ_ONLY),
    ),
    *not_implemented(
        "share groups are not supported",
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
        "How often transactions that have exceeded their timeout are aborted.",
    ),
    Setting(
        "transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH, READ_ONLY,
        "The maximum transaction timeout that a producer may request.",
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often expired transactional IDs are removed.",
    ),
    Setting(
        "transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, READ_ONLY,
        "The number of bytes per read when transaction state is loaded.",
        actual_behavior=LOADED_IN_CHUNKS,
    ),
    Setting(
        "transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, READ_ONLY,
        "min.insync.replicas of __transaction_state.",
    ),
    Setting(
        "transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH, READ_ONLY,
        "The number of partitions of __transaction_state; must not change after the topic has been created.",
    ),
    Setting(
        "transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH, READ_ONLY,
        "The replication factor of __transaction_state.",
    ),
    Setting(
        "transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The segment size of __transaction_state.",
    ),
    Setting(
        "transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH, READ_ONLY,
        "How long an unused transactional ID is kept.",
    ),
    Setting(
        "transaction.two.phase.commit.enable", BOOLEAN, False, ANY, LOW, READ_ONLY,
        "Whether producers may prepare transactions that do not time out, and complete them after a restart.",
    ),
    Setting(
        "transaction.partition.verification.enable", BOOLEAN, True, ANY, LOW, CLUSTER_WIDE,
        "Whether partitions verify a transaction with its coordinator before they append its first batch.",
    ),
)
"""Transactions."""
