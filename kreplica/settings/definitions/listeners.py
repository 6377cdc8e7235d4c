"""Where a broker listens, what its connections may use, and what one request may be."""

from __future__ import annotations

from kreplica.settings.definitions.words import (
    AT_START,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    Row,
    known_only,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, OneOf, at_least

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EACH_BY_ITS_NAME = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"

LISTENERS = (
    Setting(
        "advertised.listeners", STRING, None, ANY, HIGH, AT_START,
        "What clients and other brokers are told to connect to, where it differs from listeners; 0.0.0.0 cannot be "
        "told.",
    ),
    Setting(
        "inter.broker.listener.name", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The listener by which brokers speak to each other; the one whose protocol is security.inter.broker.protocol "
        "where it is not set.",
    ),
    Setting(
        "listener.security.protocol.map", STRING, EACH_BY_ITS_NAME, ANY, LOW, AT_START,
        "Which security protocol each name of a listener stands for, as NAME:PROTOCOL separated by commas.",
    ),
    Setting(
        "listeners", STRING, "PLAINTEXT://:9092", ANY, HIGH, AT_START,
        "Where the broker listens, as NAME://host:port separated by commas; without a host on all interfaces, port 0 "
        "lets the system choose.",
    ),
    Setting(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", OneOf(PROTOCOLS), MEDIUM, READ_ONLY,
        "The security protocol between brokers, which chooses the listener where inter.broker.listener.name does "
        "not; only PLAINTEXT is served.",
    ),
    *known_only(
        "the controller's requests come in by inter.broker.listener.name, ahead of all others",
        Row("control.plane.listener.name", STRING, None, ANY, HIGH, READ_ONLY),
    ),
    *known_only(
        "listeners open once the broker is ready to answer",
        Row("early.start.listeners", STRING, None, ANY, HIGH, READ_ONLY),
    ),
)
"""Where the broker listens, and what it tells others of it."""

CONNECTIONS = (
    Setting(
        "connections.max.idle.ms", LONG, 600_000, ANY, MEDIUM, READ_ONLY,
        "After how long a connection on which nothing moves is closed.",
    ),
    Setting(
        "fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM, READ_ONLY,
        "The most that one fetch is answered with, whatever its client asks for.",
    ),
    Setting(
        "max.connections", INT, 2**31 - 1, at_least(0), MEDIUM, AT_START,
        "How many connections the broker holds; further ones are closed at once.",
    ),
    Setting(
        "max.connections.per.ip", INT, 2**31 - 1, at_least(0), MEDIUM, AT_START,
        "How many connections one address may hold.",
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "How many fetch sessions are remembered, so that fetches need not name every partition each time.",
    ),
    Setting(
        "queued.max.request.bytes", LONG, -1, ANY, MEDIUM, READ_ONLY,
        "How many bytes of requests may be held before connections are read no further; -1 is without bound.",
    ),
    Setting(
        "queued.max.requests", INT, 500, at_least(1), HIGH, READ_ONLY,
        "How many requests may wait for their turn before no further connection is read.",
        instead="each connection has bounds of its own (kreplica.connection.*), and none waits for another",
    ),
    Setting(
        "socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, READ_ONLY,
        "How many connections may wait to be accepted; the operating system may hold fewer.",
    ),
    Setting(
        "socket.receive.buffer.bytes", INT, 102_400, ANY, HIGH, READ_ONLY,
        "The size of a connection's receive buffer; where it is -1 or nobody sets it, the system adapts it.",
    ),
    Setting(
        "socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The largest request that is read; a connection that announces a larger one is closed.",
    ),
    Setting(
        "socket.send.buffer.bytes", INT, 102_400, ANY, HIGH, READ_ONLY,
        "The size of a connection's send buffer; where it is -1 or nobody sets it, the system adapts it.",
    ),
    *known_only(
        "one reactor serves all connections and requests; more cores are used by more brokers",
        Row("num.network.threads", INT, 3, at_least(1), HIGH, CLUSTER_WIDE),
        Row("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE),
        Row("background.threads", INT, 10, at_least(1), HIGH, CLUSTER_WIDE),
    ),
    *known_only(
        "one bound, max.connections.per.ip, holds for all addresses",
        Row("max.connections.per.ip.overrides", STRING, "", ANY, MEDIUM, CLUSTER_WIDE),
    ),
    *known_only(
        "connections are accepted as fast as they come",
        Row("max.connection.creation.rate", INT, 2**31 - 1, at_least(0), MEDIUM, CLUSTER_WIDE),
    ),
    *known_only(
        "requests that wait are removed when they are answered, not purged at intervals",
        Row("delete.records.purgatory.purge.interval.requests", INT, 1, ANY, MEDIUM, READ_ONLY),
        Row("fetch.purgatory.purge.interval.requests", INT, 1000, ANY, MEDIUM, READ_ONLY),
        Row("producer.purgatory.purge.interval.requests", INT, 1000, ANY, MEDIUM, READ_ONLY),
    ),
    *known_only(
        "requests between brokers have the time limits of controller.socket.timeout.ms and replica.socket.timeout.ms",
        Row("request.timeout.ms", INT, 30_000, ANY, HIGH, READ_ONLY),
    ),
    *known_only(
        "connections to other brokers have a time limit of their own",
        Row("socket.connection.setup.timeout.ms", LONG, 10_000, ANY, MEDIUM, READ_ONLY),
        Row("socket.connection.setup.timeout.max.ms", LONG, 30_000, ANY, MEDIUM, READ_ONLY),
    ),
    *known_only(
        "DescribeTopicPartitions is not served",
        Row("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, READ_ONLY),
    ),
)
"""What connections and their requests may use."""
