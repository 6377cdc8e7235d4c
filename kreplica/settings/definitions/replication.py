"""Settings of replication from leaders to followers."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    STRING,
    Row,
    not_implemented,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, OneOf, at_least

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"

REPLICATION = (
    Setting(
        "replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The maximum backoff of a follower after failed fetches; the first backoffs are shorter.",
    ),
    Setting(
        "replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM, READ_ONLY,
        "The maximum bytes per partition that a follower fetches; a larger batch is still returned whole.",
    ),
    Setting(
        "replica.fetch.min.bytes", INT, 1, ANY, HIGH, READ_ONLY,
        "The minimum bytes of a fetch response to a follower, unless replica.fetch.wait.max.ms has passed.",
    ),
    Setting(
        "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM, READ_ONLY,
        "The maximum bytes of one fetch response to a follower, over all partitions.",
    ),
    Setting(
        "replica.fetch.wait.max.ms", INT, 500, ANY, HIGH, READ_ONLY,
        "How long a leader waits for new records before it responds to a follower's fetch.",
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, ANY, HIGH, READ_ONLY,
        "How often the high watermarks of all logs are checkpointed.",
    ),
    Setting(
        "replica.lag.time.max.ms", LONG, 30_000, ANY, HIGH, READ_ONLY,
        "How long a follower may lag behind the leader's log end offset before it is removed from the ISR.",
    ),
    Setting(
        "replica.socket.receive.buffer.bytes", INT, 65_536, ANY, HIGH, READ_ONLY,
        "The receive buffer size of followers' fetch connections; chosen by the operating system unless it is set.",
    ),
    Setting(
        "replica.socket.timeout.ms", INT, 30_000, ANY, HIGH, READ_ONLY,
        "How long a follower waits for a fetch response.",
    ),
    *not_implemented(
        "a follower fetches all partitions of a leader over one connection",
        Row("num.replica.fetchers", INT, 1, ANY, HIGH, CLUSTER_WIDE),
    ),
    Setting(
        "replica.selector.class", STRING, None, OneOf(("", LEADER_SELECTOR, RACK_AWARE_SELECTOR)), MEDIUM, READ_ONLY,
        "The replica from which consumers with a rack (client.rack) fetch. RackAwareReplicaSelector: the most advanced "
        "in-sync replica in that rack, otherwise the leader; LeaderSelector, empty or not set: the leader. Other "
        "classes are not supported.",
    ),
    # In Kafka, these two are dynamic settings only.
    Setting(
        "leader.replication.throttled.rate", LONG, 2**63 - 1, at_least(0), MEDIUM, PER_BROKER,
        "The maximum bytes per second that the broker sends, as leader, to throttled replicas that are not in sync.",
        listed=False,
    ),
    Setting(
        "follower.replication.throttled.rate", LONG, 2**63 - 1, at_least(0), MEDIUM, PER_BROKER,
        "The maximum bytes per second that the broker fetches for its throttled replicas that are not in sync.",
        listed=False,
    ),
    *not_implemented(
        "replicas do not move between directories of one broker",
        Row("num.replica.alter.log.dirs.threads", INT, None, ANY, HIGH, READ_ONLY),
        Row(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            LONG, 2**63 - 1, at_least(0), MEDIUM, PER_BROKER, listed=False,
        ),
    ),
)
"""Replication."""
