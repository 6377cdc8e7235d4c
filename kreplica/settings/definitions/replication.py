"""How followers keep up with leaders."""

from __future__ import annotations

from kreplica.settings.definitions.words import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    STRING,
    Row,
    known_only,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, OneOf, at_least

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"

REPLICATION = (
    Setting(
        "replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "How long a follower waits at most after a fetch that failed; the first times it waits less.",
    ),
    Setting(
        "replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM, READ_ONLY,
        "How many bytes a follower asks for per partition; a larger batch still comes whole.",
    ),
    Setting(
        "replica.fetch.min.bytes", INT, 1, ANY, HIGH, READ_ONLY,
        "How many bytes a leader gathers before it answers a follower, unless replica.fetch.wait.max.ms passes.",
    ),
    Setting(
        "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM, READ_ONLY,
        "How many bytes a follower asks for in one fetch over all its partitions.",
    ),
    Setting(
        "replica.fetch.wait.max.ms", INT, 500, ANY, HIGH, READ_ONLY,
        "How long a leader may hold the fetch of a follower for which there is nothing new.",
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, ANY, HIGH, READ_ONLY,
        "How often the high watermarks of all logs are noted on disk.",
    ),
    Setting(
        "replica.lag.time.max.ms", LONG, 30_000, ANY, HIGH, READ_ONLY,
        "How long a follower may fail to reach the leader's log end before it counts as out of sync.",
    ),
    Setting(
        "replica.socket.receive.buffer.bytes", INT, 65_536, ANY, HIGH, READ_ONLY,
        "The receive buffer of the connections by which followers fetch; left to the operating system unless set.",
    ),
    Setting(
        "replica.socket.timeout.ms", INT, 30_000, ANY, HIGH, READ_ONLY,
        "How long a follower waits for the answer to a fetch.",
    ),
    *known_only(
        "one connection to each leader fetches for all partitions",
        Row("num.replica.fetchers", INT, 1, ANY, HIGH, CLUSTER_WIDE),
    ),
    Setting(
        "replica.selector.class", STRING, None, OneOf(("", LEADER_SELECTOR, RACK_AWARE_SELECTOR)), MEDIUM, READ_ONLY,
        "From which replica consumers read that say where they stand: the leader, or an in-sync one in their rack.",
    ),
    # Kafka knows these two as dynamic settings only.
    Setting(
        "leader.replication.throttled.rate", LONG, 2**63 - 1, at_least(0), MEDIUM, PER_BROKER,
        "How many bytes a second the broker sends, as leader, to those throttled replicas that are not in sync.",
        listed=False,
    ),
    Setting(
        "follower.replication.throttled.rate", LONG, 2**63 - 1, at_least(0), MEDIUM, PER_BROKER,
        "How many bytes a second the broker fetches for those of its throttled replicas that are not in sync.",
        listed=False,
    ),
    *known_only(
        "replicas do not move between directories of one broker",
        Row("num.replica.alter.log.dirs.threads", INT, None, ANY, HIGH, READ_ONLY),
        Row(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            LONG, 2**63 - 1, at_least(0), MEDIUM, PER_BROKER, listed=False,
        ),
    ),
)
"""How followers keep up with leaders."""
