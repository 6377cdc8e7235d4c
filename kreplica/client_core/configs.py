"""Configurations of topics, brokers and other resources, as encoded in requests and responses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple


class ResourceKind(IntEnum):
    """Type of a resource that has configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource that has configurations.

    :param name: name of a topic or id of a broker; empty for the defaults of all brokers.
    """

    kind: ResourceKind
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return the resource of a topic."""
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> ConfigResource:
        """Return the resource of a broker or, for None, of the defaults of all brokers."""
        return cls(ResourceKind.BROKER, "" if broker_id is None else str(broker_id))

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """Origin of a value, as encoded in DescribeConfigs (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """Type of a configuration's value (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    """A value from one source of a configuration; ``value`` is None if it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration.

    :param value: None if the value is not set or is sensitive.
    :param synonyms: all sources of the value, the effective one first; empty unless requested.
    :param documentation: None unless requested.
    """

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_sensitive: bool = False
    read_only: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if no value has been set explicitly."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterOperation(IntEnum):
    """Kind of change to a configuration (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change to one configuration; create it with ``set``, ``delete``, ``append`` or ``subtract``."""

    name: str
    operation: AlterOperation
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: str) -> ConfigChange:
        """Set a value."""
        return cls(name, AlterOperation.SET, value)

    @classmethod
    def delete(cls, name: str) -> ConfigChange:
        """Restore the default."""
        return cls(name, AlterOperation.DELETE)

    @classmethod
    def append(cls, name: str, value: str) -> ConfigChange:
        """Add to a list value."""
        return cls(name, AlterOperation.APPEND, value)

    @classmethod
    def subtract(cls, name: str, value: str) -> ConfigChange:
        """Remove from a list value."""
        return cls(name, AlterOperation.SUBTRACT, value)


def resource_row(resource: ConfigResource, **fields: Any) -> dict[str, Any]:
    """Return a resource as encoded in requests, with additional fields."""
    return {"resource_type": int(resource.kind), "resource_name": resource.name, **fields}


def change_row(change: ConfigChange) -> dict[str, Any]:
    """Return a change as encoded in IncrementalAlterConfigs."""
    return {"name": change.name, "config_operation": int(change.operation), "value": change.value}


def parse_entry(row: dict[str, Any]) -> ConfigEntry:
    """Parse a configuration from a DescribeConfigs or CreateTopics response."""
    source = ConfigSource(row.get("config_source", ConfigSource.UNKNOWN))
    if row.get("is_default"):  # version 0 has no source
        source = ConfigSource.DEFAULT_CONFIG
    synonyms = (
        ConfigSynonym(each["name"], each["value"], ConfigSource(each["source"])) for each in row.get("synonyms", ())
    )
    return ConfigEntry(
        row["name"],
        row["value"],
        source,
        row["is_sensitive"],
        row["read_only"],
        ConfigType(row.get("config_type", ConfigType.UNKNOWN)),
        tuple(synonyms),
        row.get("documentation"),
    )
