"""kreplica's own settings of a broker; no setting of Apache Kafka begins with ``kreplica.``."""

from __future__ import annotations

from kreplica.settings.definitions.words import INT, LONG, LOW, MEDIUM, READ_ONLY, STRING
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, at_least

OURS = (
    Setting(
        "kreplica.admin.listener", STRING, "", ANY, MEDIUM, READ_ONLY,
        "Where the admin API listens, as host:port; it is off where this is empty.",
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
        "kreplica.partial.request.stall.ms", LONG, 10_000, at_least(1), LOW, READ_ONLY,
        "After how long without a byte a half-sent request is given up while others wait for its memory.",
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
)
"""The broker's settings that Kafka does not have."""
