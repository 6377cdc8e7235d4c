"""kreplica's own settings of a broker; no setting of Apache Kafka begins with ``kreplica.``."""

from __future__ import annotations

from kreplica.settings.definitions.words import INT, LIST, LONG, LOW, MEDIUM, READ_ONLY, STRING
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, at_least, between

OURS = (
    Setting(
        "kreplica.admin.listener", STRING, "", ANY, MEDIUM, READ_ONLY,
        "Where the admin API listens, as host:port; it is off where this is empty.",
    ),
    Setting(
        "kreplica.admin.token.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "A file that holds the token which callers of the admin API must have; needed where others can reach it.",
    ),
    Setting(
        "kreplica.admin.tls.certificate.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The admin API's certificate in PEM, with its chain; needed where others can reach it.",
    ),
    Setting(
        "kreplica.admin.tls.key.file", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The private key of that certificate, in PEM.",
    ),
    Setting(
        "kreplica.connection.outstanding.requests.max", INT, 512, at_least(1), LOW, READ_ONLY,
        "How many requests of one connection may be unanswered before that connection is read no further.",
    ),
    Setting(
        "kreplica.connection.outstanding.request.bytes", INT, 8 * 2**20, at_least(1), LOW, READ_ONLY,
        "How many bytes of one connection's unanswered requests are held before that connection is read no further.",
    ),
    Setting(
        "kreplica.connection.outstanding.answer.bytes", INT, 4 * 2**20, at_least(1), LOW, READ_ONLY,
        "How many bytes of answers may wait for one slow client before its connection is read no further.",
    ),
    Setting(
        "kreplica.decompressed.batch.max.bytes", INT, 100 * 2**20, between(2**16, 100 * 2**20), LOW, READ_ONLY,
        "How many bytes the records of one produced batch may take when decompressed; a larger batch is refused.",
    ),
    Setting(
        "kreplica.request.without.records.max.bytes", INT, 16 * 2**20, at_least(64 * 1024), MEDIUM, READ_ONLY,
        "The largest request that carries no records and is no command of the controller (all but Produce, "
        "LeaderAndIsr, StopReplica and UpdateMetadata, which socket.request.max.bytes bounds alone); a larger one "
        "closes its connection.",
    ),
    Setting(
        "kreplica.request.parsed.max.bytes", INT, 20_000_000, at_least(1_000_000), MEDIUM, READ_ONLY,
        "Estimated memory of one such request once it is parsed, 40 bytes for each number or field: the default is "
        "70,000 names in a Metadata request, or 40,000 partitions in a Fetch; a larger one closes its connection. "
        "Beyond the default, one request may delay others by more than 10 ms.",
    ),
    Setting(
        "kreplica.stall.log.ms", INT, 100, at_least(1), LOW, READ_ONLY,
        "From how long on a stall of the event loop is logged with the request that caused it, at most every 10 s; "
        "measured while the REST API or a metrics reporter is on.",
    ),
    Setting(
        "kreplica.auto.create.topics.in.progress.max", INT, 100, at_least(1), LOW, READ_ONLY,
        "How many topics a broker creates at the same time because Metadata requests name them; further ones are "
        "answered LEADER_NOT_AVAILABLE and created when their client asks again.",
    ),
    Setting(
        "kreplica.controller.journal.directory", STRING, "", ANY, LOW, READ_ONLY,
        "Where a broker notes what it saw and decided as controller; its first log directory where this is empty.",
    ),
    Setting(
        "kreplica.controller.journal.max.bytes", LONG, 64 * 2**20, at_least(0), LOW, READ_ONLY,
        "How many bytes those notes take at most, the oldest go first; 0 notes nothing.",
    ),
    Setting(
        "kreplica.groups.lag.interval.ms", INT, 10_000, at_least(100), LOW, READ_ONLY,
        "How often it is looked at what groups commit; a group's status is that of ten looks that saw a new commit.",
    ),
    Setting(
        "kreplica.scrub.bytes.per.second", LONG, 2**20, at_least(0), LOW, READ_ONLY,
        "How fast stored records are read again to find damage while other replicas have them; 0 is not at all.",
    ),
    Setting(
        "kreplica.partition.removal.wait.ms", LONG, 60_000, at_least(0), LOW, READ_ONLY,
        "How long a partition that is to be removed can still be read, where the request does not say.",
    ),
    Setting(
        "kreplica.placement", STRING, "racks", ANY, LOW, READ_ONLY,
        "The plugin that says which brokers hold new replicas; racks spreads them evenly over racks and brokers.",
    ),
    Setting(
        "kreplica.leader.election", STRING, "assigned", ANY, LOW, READ_ONLY,
        "The plugin that says which of the replicas in sync leads; assigned goes by the order of the assignment.",
    ),
    Setting(
        "kreplica.authorizer", STRING, "allow-all", ANY, MEDIUM, READ_ONLY,
        "The plugin that says who may do what; allow-all asks nobody.",
    ),
    Setting(
        "kreplica.produce.interceptors", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that see, change or refuse what clients produce before it is appended, one after the other.",
    ),
    Setting(
        "kreplica.metrics.reporters", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that are told the metrics that the admin API serves for Prometheus.",
    ),
    Setting(
        "kreplica.metrics.report.interval.ms", INT, 10_000, at_least(100), LOW, READ_ONLY,
        "How often those are told.",
    ),
    Setting(
        "kreplica.extra.listeners", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that start with the broker, such as listeners for other protocols.",
    ),
)
"""The broker's settings that Kafka does not have."""
