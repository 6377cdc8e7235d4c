"""Settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.memory_limits import GroupBounds
from kreplica.groups.offset_memory import OffsetBounds


@dataclass(frozen=True, slots=True)
class ExpiryConfig:
    """Settings of offset expiry; the defaults are Kafka's.

    :param retention_ms: ``offsets.retention.minutes``, in milliseconds.
    :param check_interval_ms: ``offsets.retention.check.interval.ms``.
    """

    retention_ms: int = 10_080 * 60_000
    check_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """All settings of the group coordinator."""

    classic: ClassicConfig = field(default_factory=ClassicConfig)
    expiry: ExpiryConfig = field(default_factory=ExpiryConfig)
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    memory: GroupBounds = field(default_factory=GroupBounds)
    offset_memory: OffsetBounds = field(default_factory=OffsetBounds)
