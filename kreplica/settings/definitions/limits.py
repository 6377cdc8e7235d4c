"""Limits on the memory that clients can occupy on a broker; docs/reference/limits.md lists all limits."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import INT, LONG, LOW, READ_ONLY
from kreplica.settings.setting import Setting
from kreplica.settings.validators import at_least

MIB = 2**20

LIMITS = (
    Setting(
        "kreplica.partial.request.stall.ms", LONG, 5000, at_least(1), LOW, READ_ONLY,
        "The period over which the rate of an incomplete request is measured before its connection may be closed.",
    ),
    Setting(
        "kreplica.partial.request.rate.min", LONG, 16_384, at_least(0), LOW, READ_ONLY,
        "The minimum rate of an incomplete request in bytes per second; the connections of slower requests are closed "
        "when other requests need the memory.",
    ),
    Setting(
        "kreplica.address.outstanding.requests.max", INT, 30_000, at_least(1), LOW, READ_ONLY,
        "The maximum number of pending requests from one client address; beyond that, each of its connections may have "
        "only one.",
    ),
    Setting(
        "kreplica.broker.outstanding.requests.max", INT, 100_000, at_least(1), LOW, READ_ONLY,
        "The maximum number of pending requests on all connections; beyond that, each client address is limited to an "
        "equal share.",
    ),
    Setting(
        "kreplica.address.outstanding.response.bytes", LONG, 256 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for responses that clients at one address have not read; beyond that, connections whose "
        "clients read nothing for kreplica.partial.request.stall.ms are closed.",
    ),
    Setting(
        "kreplica.broker.outstanding.response.bytes", LONG, 1024 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for responses that clients at all addresses have not read.",
    ),
    Setting(
        "kreplica.group.member.bytes.max", LONG, 2 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for one group member: its protocols, metadata and subscription.",
    ),
    Setting(
        "kreplica.group.bytes.max", LONG, 64 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for all members of one group, including their assignments.",
    ),
    Setting(
        "kreplica.group.address.bytes.max", LONG, 128 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for all group members that joined from one client address.",
    ),
    Setting(
        "kreplica.group.broker.bytes.max", LONG, 512 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for all groups of this broker; members that would exceed it are rejected.",
    ),
    Setting(
        "kreplica.offsets.group.bytes.max", LONG, 128 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for the committed offsets of one group; commits for further partitions are rejected.",
    ),
    Setting(
        "kreplica.offsets.address.bytes.max", LONG, 512 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for the committed offsets of all groups whose first commit came from one client address.",
    ),
    Setting(
        "kreplica.offsets.broker.bytes.max", LONG, 1024 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for the committed offsets of all groups of this broker.",
    ),
    Setting(
        "kreplica.transactional.id.address.bytes.max", LONG, 128 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for all transactional IDs whose producers were initialized from one client address.",
    ),
    Setting(
        "kreplica.transactional.id.broker.bytes.max", LONG, 512 * MIB, at_least(1024), LOW, READ_ONLY,
        "The maximum memory for all transactional IDs of this broker; IDs that would exceed it are rejected with "
        "COORDINATOR_NOT_AVAILABLE, which clients retry.",
    ),
    Setting(
        "kreplica.partition.producer.ids.max", INT, 100_000, at_least(1), LOW, READ_ONLY,
        "The maximum number of idempotent producers that a partition remembers; batches from further producers are "
        "rejected with NOT_ENOUGH_REPLICAS, which clients retry.",
    ),
    Setting(
        "kreplica.broker.producer.ids.max", INT, 2_000_000, at_least(1), LOW, READ_ONLY,
        "The maximum number of idempotent producers that all partitions remember; beyond that, only partitions with "
        "less than an equal share accept new producers.",
    ),
    Setting(
        "kreplica.fetch.session.partitions.max", INT, 1_000_000, at_least(1000), LOW, READ_ONLY,
        "The maximum number of partitions in all fetch sessions; a quarter is reserved for followers.",
    ),
    Setting(
        "telemetry.max.bytes", INT, 2**20, at_least(1), LOW, READ_ONLY,
        "The maximum compressed size of the metrics that a client pushes in one request.",
    ),
    Setting(
        "kreplica.client.telemetry.bytes.max", LONG, 64 * MIB, at_least(0), LOW, READ_ONLY,
        "The maximum memory for the latest metrics of all clients; beyond that, the oldest metrics are dropped.",
    ),
)
"""Memory limits."""
