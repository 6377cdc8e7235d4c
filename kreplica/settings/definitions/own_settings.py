"""kreplica's own settings of a broker; no setting of Apache Kafka begins with ``kreplica.``."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import BOOLEAN, INT, LIST, LONG, LOW, MEDIUM, READ_ONLY, STRING
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, EachOneOf, at_least, between

OWN_SETTINGS = (
    Setting(
        "kreplica.admin.listener", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The address of the admin API and the dashboard, as host:port; empty disables them. Other brokers query it "
        "only if the broker advertises a Kafka listener with the same host.",
    ),
    Setting(
        "kreplica.admin.token.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The file with the token of the admin API, the same on all brokers. Clients that send it are super users, and "
        "brokers authenticate to each other with it. Without it, the API has no authentication.",
    ),
    Setting(
        "kreplica.admin.authentication", LIST, (), EachOneOf(("none", "token", "basic", "certificate", "bearer")),
        MEDIUM, READ_ONLY,
        "How clients of the admin API authenticate, in addition to the token: with the password of a SCRAM user "
        "(basic), with a client certificate (certificate), or with a token of the authorization server of "
        "sasl.oauthbearer.jwks.endpoint.url (bearer). Empty: with the token, if there is one.",
    ),
    Setting(
        "kreplica.admin.allow.anonymous", BOOLEAN, False, ANY, MEDIUM, READ_ONLY,
        "Whether the admin API may listen on an address other than loopback without authentication or TLS.",
    ),
    Setting(
        "kreplica.admin.hosts", LIST, (), ANY, LOW, READ_ONLY,
        "More host names that clients of the admin API may use, such as that of a proxy; other names are rejected, "
        "to prevent DNS rebinding, unless the token is the only way to authenticate.",
    ),
    Setting(
        "kreplica.admin.session.ms", LONG, 12 * 3_600_000, at_least(1000), LOW, READ_ONLY,
        "How long a login to the dashboard lasts.",
    ),
    Setting(
        "kreplica.admin.tls.certificate.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The certificate chain of the admin API in PEM; required unless the API listens on loopback. The broker also "
        "trusts these certificates when it queries other brokers.",
    ),
    Setting(
        "kreplica.admin.tls.key.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The private key of the admin API's certificate, in PEM.",
    ),
    Setting(
        "kreplica.admin.tls.client.ca.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The certificate authorities of client certificates, in PEM. ssl.principal.mapping.rules converts the subject "
        "of a certificate to a user.",
    ),
    Setting(
        "kreplica.connection.outstanding.requests.max", INT, 512, at_least(1), LOW, READ_ONLY,
        "The maximum number of pending requests of a connection before the broker stops reading from it.",
    ),
    Setting(
        "kreplica.connection.outstanding.request.bytes", INT, 8 * 2**20, at_least(1), LOW, READ_ONLY,
        "The maximum bytes of pending requests of a connection before the broker stops reading from it.",
    ),
    Setting(
        "kreplica.connection.outstanding.response.bytes", INT, 4 * 2**20, at_least(1), LOW, READ_ONLY,
        "The maximum bytes of unsent responses of a connection before the broker stops reading from it.",
    ),
    Setting(
        "kreplica.decompressed.batch.max.bytes", INT, 100 * 2**20, between(2**16, 100 * 2**20), LOW, READ_ONLY,
        "The maximum decompressed size of a produced batch; a larger batch is rejected.",
    ),
    Setting(
        "kreplica.request.without.records.max.bytes", INT, 16 * 2**20, at_least(64 * 1024), MEDIUM, READ_ONLY,
        "The maximum size of requests other than Produce, LeaderAndIsr, StopReplica and UpdateMetadata (which only "
        "socket.request.max.bytes limits); a larger request closes its connection.",
    ),
    Setting(
        "kreplica.request.parsed.max.bytes", INT, 20_000_000, at_least(1_000_000), MEDIUM, READ_ONLY,
        "The maximum estimated memory of a request without records after parsing, 40 bytes per number or field: the "
        "default allows 50,000 topics in a Metadata request or 35,000 partitions in a Fetch. A larger request closes "
        "its connection. With a higher value, a request may delay others by more than 10 ms.",
    ),
    Setting(
        "kreplica.tls.expiry.warning.days", INT, 30, at_least(0), MEDIUM, READ_ONLY,
        "The number of days before the expiry of a listener's certificate from which the broker warns: in the log once "
        "a day, in `kreplica why broker` and in the dashboard.",
    ),
    Setting(
        "kreplica.stall.log.ms", INT, 100, at_least(1), LOW, READ_ONLY,
        "The minimum duration of an event loop stall that is logged with the request that caused it, at most every "
        "10 s; measured if the admin API or a metrics reporter is enabled.",
    ),
    Setting(
        "kreplica.auto.create.topics.in.progress.max", INT, 100, at_least(1), LOW, READ_ONLY,
        "The maximum number of concurrent automatic topic creations; requests for further topics receive "
        "LEADER_NOT_AVAILABLE, and the topics are created when their clients retry.",
    ),
    Setting(
        "kreplica.auto.create.topics.address.rate.max", INT, 20, at_least(1), LOW, READ_ONLY,
        "The maximum number of automatic topic creations per second for one client address; a burst may "
        "use up to 50 s of unused rate. Requests for further topics receive LEADER_NOT_AVAILABLE, and the topics are "
        "created when their clients retry.",
    ),
    Setting(
        "kreplica.controller.journal.directory", STRING, "", ANY, LOW, READ_ONLY,
        "The directory of the controller journal; if empty, the broker's first log directory.",
    ),
    Setting(
        "kreplica.controller.journal.max.bytes", LONG, 64 * 2**20, at_least(0), LOW, READ_ONLY,
        "The maximum size of the controller journal; the oldest entries are removed first; 0 disables the journal.",
    ),
    Setting(
        "kreplica.groups.lag.interval.ms", INT, 10_000, at_least(100), LOW, READ_ONLY,
        "How often the lag of groups is computed, if the admin API or a metrics reporter is enabled; a group's "
        "status is derived from the last ten samples with a new commit.",
    ),
    Setting(
        "kreplica.scrub.bytes.per.second", LONG, 2**20, at_least(0), LOW, READ_ONLY,
        "The rate at which stored records are verified, to detect corruption while other replicas have "
        "intact copies; 0 disables verification.",
    ),
    Setting(
        "kreplica.partition.removal.wait.ms", LONG, 60_000, at_least(0), LOW, READ_ONLY,
        "How long a partition marked for removal remains readable, unless the request specifies another time.",
    ),
    Setting(
        "kreplica.placement", STRING, "racks", ANY, LOW, READ_ONLY,
        "The plugin that places new replicas on brokers; racks spreads them evenly over racks and brokers.",
    ),
    Setting(
        "kreplica.leader.election", STRING, "assigned", ANY, LOW, READ_ONLY,
        "The plugin that elects the leader among the in-sync replicas; assigned follows the order of the assignment.",
    ),
    Setting(
        "kreplica.authorizer", STRING, "allow-all", ANY, MEDIUM, READ_ONLY,
        "The plugin that authorizes requests; allow-all permits every request.",
    ),
    Setting(
        "kreplica.produce.interceptors", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that inspect, change or reject produced records before they are appended, in this order.",
    ),
    Setting(
        "kreplica.metrics.reporters", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that receive the metrics that the admin API serves in Prometheus format.",
    ),
    Setting(
        "kreplica.metrics.report.interval.ms", INT, 10_000, at_least(100), LOW, READ_ONLY,
        "How often the metrics reporters receive the metrics.",
    ),
    Setting(
        "kreplica.extra.listeners", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that the broker starts, such as listeners for other protocols.",
    ),
)
"""Broker settings that Kafka does not have."""
