"""Who a broker is, where its cluster keeps its state, and what topics get where nobody says."""

from __future__ import annotations

from kreplica.settings.definitions.words import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    READ_ONLY,
    STRING,
    Row,
    known_only,
    protective,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, at_least

IDENTITY = (
    Setting(
        "broker.id", INT, -1, ANY, HIGH, READ_ONLY,
        "The broker's number, unique in the cluster and kept for good: replicas are assigned by it.",
    ),
    Setting(
        "broker.rack", STRING, None, ANY, MEDIUM, READ_ONLY,
        "Where the broker stands: the replicas of a partition are spread over as many racks as there are.",
    ),
    Setting(
        "node.id", INT, -1, ANY, HIGH, READ_ONLY,
        "Another name of broker.id; where both are given they must be equal.",
    ),
    Setting(
        "reserved.broker.max.id", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The highest number that broker.id may have.",
    ),
    *known_only(
        "broker.id must be given; nothing hands out numbers",
        Row("broker.id.generation.enable", BOOLEAN, True, ANY, MEDIUM, READ_ONLY),
    ),
)
"""Who the broker is."""

ZOOKEEPER = (
    Setting(
        "zookeeper.connect", STRING, None, ANY, HIGH, READ_ONLY,
        "ZooKeeper's servers as host:port,host:port, with an optional path behind the last under which everything is "
        "kept.",
    ),
    Setting(
        "zookeeper.connection.timeout.ms", INT, None, ANY, HIGH, READ_ONLY,
        "How long a starting broker waits for a ZooKeeper server that accepts a connection; "
        "zookeeper.session.timeout.ms if it is not set.",
    ),
    Setting(
        "zookeeper.session.timeout.ms", INT, 18_000, ANY, HIGH, READ_ONLY,
        "How long ZooKeeper waits for a sign of life before it takes the broker for dead.",
    ),
    *protective(
        "the connection to ZooKeeper is not encrypted",
        Row("zookeeper.clientCnxnSocket", STRING, None, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.cipher.suites", LIST, None, ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.client.enable", BOOLEAN, False, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.crl.enable", BOOLEAN, False, ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.enabled.protocols", LIST, None, ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.keystore.location", STRING, None, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.keystore.password", PASSWORD, None, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.keystore.type", STRING, None, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.ocsp.enable", BOOLEAN, False, ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.protocol", STRING, "TLSv1.2", ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.truststore.location", STRING, None, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.truststore.password", PASSWORD, None, ANY, MEDIUM, READ_ONLY),
        Row("zookeeper.ssl.truststore.type", STRING, None, ANY, MEDIUM, READ_ONLY),
    ),
    *protective(
        "znodes are open to everybody who reaches ZooKeeper",
        Row("zookeeper.set.acl", BOOLEAN, False, ANY, HIGH, READ_ONLY),
    ),
    *known_only(
        "requests to ZooKeeper are pipelined without this bound",
        Row("zookeeper.max.in.flight.requests", INT, 10, at_least(1), HIGH, READ_ONLY),
    ),
    *known_only(
        "the cluster stays in ZooKeeper, there is no migration to KRaft",
        Row("zookeeper.metadata.migration.enable", BOOLEAN, False, ANY, HIGH, READ_ONLY),
        Row("zookeeper.metadata.migration.min.batch.size", INT, 200, at_least(1), MEDIUM, READ_ONLY, listed=False),
    ),
)
"""Where the cluster keeps its state."""

TOPICS = (
    Setting(
        "auto.create.topics.enable", BOOLEAN, True, ANY, HIGH, READ_ONLY,
        "Whether a topic that a producer or consumer asks for is created where it does not exist.",
    ),
    Setting(
        "default.replication.factor", INT, 1, ANY, MEDIUM, READ_ONLY,
        "How many replicas a partition gets where its creator does not say, and topics that are created "
        "automatically.",
    ),
    Setting(
        "delete.topic.enable", BOOLEAN, True, ANY, HIGH, READ_ONLY,
        "Whether topics can be deleted.",
    ),
    Setting(
        "num.partitions", INT, 1, at_least(1), MEDIUM, READ_ONLY,
        "How many partitions a topic gets where its creator does not say.",
    ),
    *protective(
        "every topic that is well formed is allowed",
        Row("create.topic.policy.class.name", CLASS, None, ANY, LOW, READ_ONLY),
    ),
    *protective(
        "every setting that is well formed is allowed",
        Row("alter.config.policy.class.name", CLASS, None, ANY, LOW, READ_ONLY),
    ),
)
"""What topics get where nobody says, and whether they come and go."""

CONTROLLER = (
    Setting(
        "auto.leader.rebalance.enable", BOOLEAN, True, ANY, HIGH, READ_ONLY,
        "Whether the controller gives leadership back to the preferred replicas of its own accord.",
    ),
    Setting(
        "controlled.shutdown.enable", BOOLEAN, True, ANY, MEDIUM, READ_ONLY,
        "Whether a stopping broker first hands its leaderships over.",
    ),
    Setting(
        "controlled.shutdown.max.retries", INT, 3, ANY, MEDIUM, READ_ONLY,
        "How often a stopping broker asks the controller again before it stops all the same.",
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms", LONG, 5000, ANY, MEDIUM, READ_ONLY,
        "How long a stopping broker waits before it asks the controller again.",
    ),
    Setting(
        "controller.socket.timeout.ms", INT, 30_000, ANY, MEDIUM, READ_ONLY,
        "How long the controller waits for the answer of a broker to a command.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, READ_ONLY,
        "How often the controller looks whether preferred replicas should lead again.",
    ),
    Setting(
        "leader.imbalance.per.broker.percentage", INT, 10, ANY, HIGH, READ_ONLY,
        "What share of the partitions that prefer a broker may be led elsewhere before leadership is given back.",
    ),
    Setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY, HIGH, CLUSTER_WIDE,
        "Whether a replica that is not in sync may lead where no other is alive, which loses records; for topics "
        "that do not say themselves.",
    ),
    *known_only(
        "a partition without a leader is looked at when something changes, not at intervals",
        Row("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY, listed=False),
    ),
)
"""Leadership, and how the controller speaks to brokers."""
