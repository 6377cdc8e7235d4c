"""Settings in questions and answers: of topics, brokers, and whatever else has some."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple


class ResourceKind(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing that has settings.

    :param name: of a topic; of a broker its id, or empty for what all brokers share.
    """

    kind: ResourceKind
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> ConfigResource:
        """A broker; None: what all of them share."""
        return cls(ResourceKind.BROKER, "" if broker_id is None else str(broker_id))

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """Where a value comes from, by the codes of DescribeConfigs (KIP-226)."""

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
    """What kind of value a setting takes (KIP-569)."""

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
    """One place that gives a setting a value; ``value`` is None for a secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting.

    :param value: None where it has none, or is a secret.
    :param synonyms: all places that give it a value, the one that counts first; empty where not asked for.
    :param documentation: None where not asked for.
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
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterOperation(IntEnum):
    """How a setting is changed (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of a setting, as ``set``, ``delete``, ``append`` and ``subtract`` make it."""

    name: str
    operation: AlterOperation
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: str) -> ConfigChange:
        """Give it a value."""
        return cls(name, AlterOperation.SET, value)

    @classmethod
    def delete(cls, name: str) -> ConfigChange:
        """Back to what is without it."""
        return cls(name, AlterOperation.DELETE)

    @classmethod
    def append(cls, name: str, value: str) -> ConfigChange:
        """Add to a list."""
        return cls(name, AlterOperation.APPEND, value)

    @classmethod
    def subtract(cls, name: str, value: str) -> ConfigChange:
        """Take from a list."""
        return cls(name, AlterOperation.SUBTRACT, value)


def resource_row(resource: ConfigResource, **fields: Any) -> dict[str, Any]:
    """A resource as requests carry it, with what they ask about it."""
    return {"resource_type": int(resource.kind), "resource_name": resource.name, **fields}


def change_row(change: ConfigChange) -> dict[str, Any]:
    """A change as IncrementalAlterConfigs carries it."""
    return {"name": change.name, "config_operation": int(change.operation), "value": change.value}


def parse_entry(row: dict[str, Any]) -> ConfigEntry:
    """A setting, as answers of several APIs carry it."""
    source = ConfigSource(row.get("config_source", ConfigSource.UNKNOWN))
    if row.get("is_default"):  # version 0 has this in place of the source
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
