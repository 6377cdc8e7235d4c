"""Settings of listeners, connections and requests."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
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
    not_implemented,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, ConnectionOverrides, OneOf, at_least

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"

LISTENERS = (
    Setting(
        "advertised.listeners", STRING, None, ANY, HIGH, AT_START,
        "The addresses that clients and other brokers connect to, if they differ from listeners; must not contain "
        "0.0.0.0.",
    ),
    Setting(
        "control.plane.listener.name", STRING, None, ANY, HIGH, READ_ONLY,
        "The listener for the controller's requests to brokers; it must differ from the inter-broker listener, which "
        "is the default. On every listener, the controller's requests are served first.",
    ),
    Setting(
        "inter.broker.listener.name", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The listener for requests between brokers; defaults to the one whose protocol is "
        "security.inter.broker.protocol.",
    ),
    Setting(
        "listener.security.protocol.map", STRING, DEFAULT_PROTOCOL_MAP, ANY, LOW, AT_START,
        "The security protocol of each listener, as a comma-separated list of NAME:PROTOCOL.",
    ),
    Setting(
        "listeners", STRING, "PLAINTEXT://:9092", ANY, HIGH, AT_START,
        "The addresses on which the broker listens, as a comma-separated list of NAME://host:port; an empty host means "
        "all interfaces, and port 0 lets the operating system choose.",
    ),
    Setting(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", OneOf(PROTOCOLS), MEDIUM, READ_ONLY,
        "The security protocol between brokers; selects the listener if inter.broker.listener.name is not set.",
    ),
    *not_implemented(
        "listeners open when the broker is ready to serve requests",
        Row("early.start.listeners", STRING, None, ANY, HIGH, READ_ONLY),
    ),
)
"""Listeners and advertised listeners."""

CONNECTIONS = (
    Setting(
        "connections.max.idle.ms", LONG, 600_000, ANY, MEDIUM, READ_ONLY,
        "How long a connection may be idle before it is closed; 0 or less means unlimited.",
    ),
    Setting(
        "fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM, READ_ONLY,
        "The maximum size of a fetch response, even if the client requests more.",
    ),
    Setting(
        "max.connections", INT, 2**31 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of connections to the broker or, with the prefix listener.name.L., to a listener; further "
        "connections are accepted once others have closed. Other brokers can always connect if they use a separate "
        "listener: the broker then closes the connection on another listener that has been idle longest.",
    ),
    Setting(
        "max.connections.per.ip", INT, 2**31 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of connections from one IP address; further connections are closed immediately.",
    ),
    Setting(
        "max.connections.per.ip.overrides", STRING, "", ConnectionOverrides(), MEDIUM, CLUSTER_WIDE,
        "The addresses to which limits other than max.connections.per.ip apply, as a comma-separated list of "
        "ADDRESS:NUMBER.",
    ),
    Setting(
        "max.connection.creation.rate", INT, 2**31 - 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of connections that the broker or, with the prefix listener.name.L., a listener accepts "
        "per second; further connections are accepted with a delay.",
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The maximum number of incremental fetch sessions.",
    ),
    Setting(
        "quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "The number of windows over which the byte rates and request percentages of clients with quotas, and the rates "
        "of connections, are measured.",
    ),
    Setting(
        "quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The length of each window of quota.window.num, in seconds.",
    ),
    Setting(
        "controller.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "The number of windows over which a client can accumulate unused quota for creating and deleting partitions "
        "(controller_mutation_rate), to use it in one burst.",
    ),
    Setting(
        "controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The length of each window of controller.quota.window.num, in seconds.",
    ),
    Setting(
        "queued.max.request.bytes", LONG, -1, ANY, MEDIUM, READ_ONLY,
        "The maximum memory for incomplete requests on all connections; -1 means 512 MiB. Beyond that, connections "
        "whose requests arrive too slowly (kreplica.partial.request.rate.min) are closed.",
    ),
    Setting(
        "queued.max.requests", INT, 500, at_least(1), HIGH, READ_ONLY,
        "The maximum number of queued requests before the broker stops reading from connections.",
        actual_behavior="each connection has its own limits (kreplica.connection.*)",
    ),
    Setting(
        "socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, READ_ONLY,
        "The maximum number of connections waiting to be accepted. If it is not configured, kreplica uses 1024; the "
        "operating system may limit it further.",
    ),
    Setting(
        "socket.receive.buffer.bytes", INT, 102_400, ANY, HIGH, READ_ONLY,
        "The size of a connection's receive buffer (SO_RCVBUF); chosen by the operating system if it is -1 or not "
        "configured.",
    ),
    Setting(
        "socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The maximum request size; a connection that announces a larger request is closed.",
    ),
    Setting(
        "socket.send.buffer.bytes", INT, 102_400, ANY, HIGH, READ_ONLY,
        "The size of a connection's send buffer (SO_SNDBUF); chosen by the operating system if it is -1 or not "
        "configured.",
    ),
    *not_implemented(
        "one reactor serves all connections and requests; to use more cores, run more brokers",
        Row("num.network.threads", INT, 3, at_least(1), HIGH, CLUSTER_WIDE),
        Row("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE),
        Row("background.threads", INT, 10, at_least(1), HIGH, CLUSTER_WIDE),
    ),
    *not_implemented(
        "completed requests leave the purgatory immediately",
        Row("delete.records.purgatory.purge.interval.requests", INT, 1, ANY, MEDIUM, READ_ONLY),
        Row("fetch.purgatory.purge.interval.requests", INT, 1000, ANY, MEDIUM, READ_ONLY),
        Row("producer.purgatory.purge.interval.requests", INT, 1000, ANY, MEDIUM, READ_ONLY),
    ),
    *not_implemented(
        "the controller uses controller.socket.timeout.ms and followers use replica.socket.timeout.ms; other requests "
        "between brokers have fixed timeouts",
        Row("request.timeout.ms", INT, 30_000, ANY, HIGH, READ_ONLY),
    ),
    *not_implemented(
        "the controller, followers and coordinators have their own connection timeouts",
        Row("socket.connection.setup.timeout.ms", LONG, 10_000, ANY, MEDIUM, READ_ONLY),
        Row("socket.connection.setup.timeout.max.ms", LONG, 30_000, ANY, MEDIUM, READ_ONLY),
    ),
    *not_implemented(
        "DescribeTopicPartitions is not served",
        Row("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, READ_ONLY),
    ),
)
"""Limits on connections and requests."""
