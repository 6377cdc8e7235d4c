"""Bounds on the memory that clients can make a broker hold; docs/reference/limits.md has all of them in one table."""

from __future__ import annotations

from kreplica.settings.definitions.words import INT, LONG, LOW, READ_ONLY
from kreplica.settings.setting import Setting
from kreplica.settings.validators import at_least

MIB = 2**20

LIMITS = (
    Setting(
        "kreplica.partial.request.stall.ms", LONG, 5000, at_least(1), LOW, READ_ONLY,
        "For how long the rate of a half-sent request is measured before it can be given up as too slow.",
    ),
    Setting(
        "kreplica.partial.request.rate.min", LONG, 16_384, at_least(0), LOW, READ_ONLY,
        "Bytes per second below which a half-sent request is given up when others need its memory.",
    ),
    Setting(
        "kreplica.group.member.bytes.max", LONG, 2 * MIB, at_least(1024), LOW, READ_ONLY,
        "Memory that one member of a group may hold: its protocols, metadata and subscription.",
    ),
    Setting(
        "kreplica.group.bytes.max", LONG, 64 * MIB, at_least(1024), LOW, READ_ONLY,
        "Memory that all members of one group may hold, their assignments included.",
    ),
    Setting(
        "kreplica.group.address.bytes.max", LONG, 128 * MIB, at_least(1024), LOW, READ_ONLY,
        "Memory that groups may hold here for members that joined from one client address.",
    ),
    Setting(
        "kreplica.group.broker.bytes.max", LONG, 512 * MIB, at_least(1024), LOW, READ_ONLY,
        "Memory that all groups of this broker may hold; members that would exceed it are refused.",
    ),
    Setting(
        "kreplica.fetch.session.partitions.max", INT, 1_000_000, at_least(1000), LOW, READ_ONLY,
        "Partitions that all fetch sessions together may hold, a quarter of them for followers alone.",
    ),
)
"""How much memory clients may hold."""
