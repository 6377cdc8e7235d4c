"""Settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.memory_limits import GroupBounds
from kreplica.groups.offset_expiry import ExpiryConfig


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    classic: ClassicConfig = field(default_factory=ClassicConfig)
    expiry: ExpiryConfig = field(default_factory=ExpiryConfig)
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    memory: GroupBounds = field(default_factory=GroupBounds)
