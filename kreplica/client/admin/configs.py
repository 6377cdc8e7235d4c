"""Settings of topics, brokers, and whatever else has some: reading and changing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from kreplica.client.admin.asking import UNKNOWN, Subject, Told, outcome
from kreplica.client.admin.outcomes import Outcomes
from kreplica.client.connection import Connection
from kreplica.sansio.errors import ClientError
from kreplica.wire.messages import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, Api


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


class Configs(Subject):
    """Settings: each resource's question goes to who answers for it: a broker's to that broker."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[ConfigResource, Mapping[str, ConfigEntry]]:
        """The settings of resources, by name.

        :param names: of the settings that are wanted; None: all.
        :param synonyms: also say all places that give them values.
        :param documentation: also say what they mean.
        """
        keys = None if names is None else list(names)

        async def ask(
            connection: Connection, share: list[ConfigResource]
        ) -> Told[ConfigResource, Mapping[str, ConfigEntry]]:
            rows = [_resource(each) | {"configuration_keys": keys} for each in share]
            body = {"resources": rows, "include_synonyms": synonyms, "include_documentation": documentation}
            answer = await self._cluster.request(connection, DESCRIBE_CONFIGS, body)
            return {each: _entries(each, row) for each, row in _by_resource(answer["results"], share)}

        return await self._at_owners(resources, ask, timeout_s)

    async def describe_config(
        self,
        resource: ConfigResource,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> Mapping[str, ConfigEntry]:
        """The settings of one resource, by name.

        :raise BrokerRefused: there is no such thing.
        """
        described = await self.describe_configs(
            [resource], synonyms=synonyms, documentation=documentation, timeout_s=timeout_s
        )
        return described[resource]

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change single settings of resources (KIP-339); a resource's changes are made all or none.

        :param validate_only: change nothing, but say what is wrong.
        """

        def row(change: ConfigChange) -> dict[str, Any]:
            return {"name": change.name, "config_operation": int(change.operation), "value": change.value}

        rows = {resource: [row(change) for change in each] for resource, each in changes.items()}
        return await self._alter(INCREMENTAL_ALTER_CONFIGS, rows, validate_only, timeout_s)

    async def alter_config(
        self,
        resource: ConfigResource,
        changes: Iterable[ConfigChange],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change single settings of one resource.

        :raise BrokerRefused: one is not known or not valid; nothing was changed.
        """
        outcomes = await self.alter_configs({resource: changes}, validate_only=validate_only, timeout_s=timeout_s)
        outcomes.raise_first()

    async def replace_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Make these the only settings that resources have of their own: all others go back to their defaults."""
        rows = {
            resource: [{"name": name, "value": value} for name, value in settings.items()]
            for resource, settings in configs.items()
        }
        return await self._alter(ALTER_CONFIGS, rows, validate_only, timeout_s)

    async def _alter(
        self, api: Api, changes: Mapping[ConfigResource, list[Any]], validate_only: bool, timeout_s: float | None
    ) -> Outcomes[ConfigResource, None]:
        async def ask(connection: Connection, share: list[ConfigResource]) -> Told[ConfigResource, None]:
            rows = [_resource(each) | {"configs": changes[each]} for each in share]
            answer = await self._cluster.request(connection, api, {"resources": rows, "validate_only": validate_only})
            found = _by_resource(answer["responses"], share)
            return {each: outcome(row, f"settings of {each}") for each, row in found}

        return await self._at_owners(changes, ask, timeout_s)

    async def _at_owners(
        self, resources: Iterable[ConfigResource], ask: Any, timeout_s: float | None
    ) -> Outcomes[ConfigResource, Any]:
        """Ask each broker about itself, and the controller about all that is not one broker's."""

        async def attempt(left: list[ConfigResource]) -> Told[ConfigResource, Any]:
            view = await self._cluster.refresh()
            owners = {each: _owner(each, view.controller_id) for each in left}
            return await self._ask_each(owners, self._cluster.connection, ask)

        return await self.settle(resources, attempt, timeout_s, final=UNKNOWN)


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


def _entries(resource: ConfigResource, row: dict[str, Any]) -> Mapping[str, ConfigEntry] | ClientError:
    error = outcome(row, f"settings of {resource}")
    return error if error is not None else {each["name"]: parse_entry(each) for each in row["configs"]}


def _owner(resource: ConfigResource, controller_id: int) -> int:
    is_brokers = resource.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and resource.name
    return int(resource.name) if is_brokers else controller_id


def _resource(resource: ConfigResource) -> dict[str, Any]:
    return {"resource_type": int(resource.kind), "resource_name": resource.name}


def _by_resource(
    rows: Iterable[dict[str, Any]], asked: Iterable[ConfigResource]
) -> list[tuple[ConfigResource, dict[str, Any]]]:
    found = {(row["resource_type"], row["resource_name"]): row for row in rows}
    return [(each, found[each.kind, each.name]) for each in asked if (each.kind, each.name) in found]
