"""Settings of the broker's identity, ZooKeeper, topic creation and the controller."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    Row,
    not_implemented,
    not_implemented_protection,
)
from kreplica.settings.definitions.zookeeper_security import ZOOKEEPER_SECURITY
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, at_least

IDENTITY = (
    Setting(
        "broker.id", INT, -1, ANY, HIGH, READ_ONLY,
        "The broker's ID, unique in the cluster; it must not change, because replicas are assigned to it.",
    ),
    Setting(
        "broker.rack", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The rack of the broker; the replicas of a partition are spread across racks.",
    ),
    Setting(
        "node.id", INT, -1, ANY, HIGH, READ_ONLY,
        "Alias of broker.id; if both are set, they must be equal.",
    ),
    Setting(
        "reserved.broker.max.id", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The maximum value of broker.id.",
    ),
    *not_implemented(
        "broker.id must be set; broker IDs are not generated",
        Row("broker.id.generation.enable", BOOLEAN, True, ANY, MEDIUM, READ_ONLY),
    ),
)
"""The broker's identity."""

ZOOKEEPER = (
    Setting(
        "zookeeper.connect", STRING, None, ANY, HIGH, READ_ONLY,
        "The ZooKeeper servers as host:port,host:port, optionally followed by a chroot path.",
    ),
    Setting(
        "zookeeper.connection.timeout.ms", INT, None, ANY, HIGH, READ_ONLY,
        "How long a starting broker waits for a ZooKeeper server to accept a connection; "
        "defaults to zookeeper.session.timeout.ms.",
    ),
    Setting(
        "zookeeper.session.timeout.ms", INT, 18_000, ANY, HIGH, READ_ONLY,
        "The ZooKeeper session timeout: a broker is considered failed if ZooKeeper receives no heartbeat from it for "
        "this long.",
    ),
    Setting(
        "zookeeper.set.acl", BOOLEAN, False, ANY, HIGH, READ_ONLY,
        "Whether only this broker's ZooKeeper user can change the znodes that the broker creates; all brokers must use "
        "the same user. Needs SASL (kreplica.zookeeper.sasl.jaas.config) or a key store (zookeeper.ssl.*).",
    ),
    *ZOOKEEPER_SECURITY,
    *not_implemented(
        "requests to ZooKeeper are pipelined without this limit",
        Row("zookeeper.max.in.flight.requests", INT, 10, at_least(1), HIGH, READ_ONLY),
    ),
    *not_implemented(
        "migration to KRaft is not supported",
        Row("zookeeper.metadata.migration.enable", BOOLEAN, False, ANY, HIGH, READ_ONLY),
        Row("zookeeper.metadata.migration.min.batch.size", INT, 200, at_least(1), MEDIUM, READ_ONLY, listed=False),
    ),
)
"""Connection to ZooKeeper."""

TOPICS = (
    Setting(
        "auto.create.topics.enable", BOOLEAN, True, ANY, HIGH, READ_ONLY,
        "Whether a Metadata request creates unknown topics if the client allows it, as consumers and producers do by "
        "default; internal topics are always created.",
    ),
    Setting(
        "default.replication.factor", INT, 1, ANY, MEDIUM, READ_ONLY,
        "The replication factor of topics that are created automatically or without a replication factor.",
    ),
    Setting(
        "delete.topic.enable", BOOLEAN, True, ANY, HIGH, READ_ONLY,
        "Whether topics can be deleted.",
    ),
    Setting(
        "num.partitions", INT, 1, at_least(1), MEDIUM, READ_ONLY,
        "The number of partitions of topics that are created automatically or without a number of partitions.",
    ),
    *not_implemented_protection(
        "every valid topic is allowed",
        Row("create.topic.policy.class.name", CLASS, None, ANY, LOW, READ_ONLY),
    ),
    *not_implemented_protection(
        "every valid setting is allowed",
        Row("alter.config.policy.class.name", CLASS, None, ANY, LOW, READ_ONLY),
    ),
)
"""Creation and deletion of topics."""

CONTROLLER = (
    Setting(
        "auto.leader.rebalance.enable", BOOLEAN, True, ANY, HIGH, READ_ONLY,
        "Whether the controller periodically moves leadership back to the preferred replicas.",
    ),
    Setting(
        "controlled.shutdown.enable", BOOLEAN, True, ANY, MEDIUM, READ_ONLY,
        "Whether a stopping broker first moves the leadership of its partitions to other brokers.",
    ),
    Setting(
        "controlled.shutdown.max.retries", INT, 3, ANY, MEDIUM, READ_ONLY,
        "How many times a stopping broker retries its request to the controller before it stops anyway.",
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms", LONG, 5000, ANY, MEDIUM, READ_ONLY,
        "How long a stopping broker waits before it retries its request to the controller.",
    ),
    Setting(
        "controller.socket.timeout.ms", INT, 30_000, ANY, MEDIUM, READ_ONLY,
        "How long the controller waits for a broker's response.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, READ_ONLY,
        "How often the controller checks whether to move leadership back to preferred replicas.",
    ),
    Setting(
        "leader.imbalance.per.broker.percentage", INT, 10, ANY, HIGH, READ_ONLY,
        "The percentage of a broker's preferred partitions that other brokers may lead before leadership moves back.",
    ),
    Setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY, HIGH, CLUSTER_WIDE,
        "Default of the topic setting unclean.leader.election.enable.",
    ),
    *not_implemented(
        "a leader is elected when brokers or settings change, not at intervals",
        Row("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY, listed=False),
    ),
)
"""Leader election, controlled shutdown and the controller's requests."""
