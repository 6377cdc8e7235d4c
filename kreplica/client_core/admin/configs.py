"""Configurations of topics, brokers and other resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import UNKNOWN, RequestRouter, Results, outcome
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ResourceKind,
    change_row,
    parse_entry,
    resource_row,
)
from kreplica.client_core.errors import ClientError
from kreplica.wire.messages import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, Api


class Configs(RequestRouter):
    """Requests for configurations; those for the configurations of one broker are sent to that broker."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[ConfigResource, Mapping[str, ConfigEntry]]:
        """Return the configurations of resources, by name.

        :param names: configurations to return; None returns all.
        :param synonyms: include all sources of each value.
        :param documentation: include the documentation of each configuration.
        """
        keys = None if names is None else list(names)

        async def send(
            connection: BrokerConnection, share: list[ConfigResource]
        ) -> Results[ConfigResource, Mapping[str, ConfigEntry]]:
            rows = [resource_row(each, configuration_keys=keys) for each in share]
            body = {"resources": rows, "include_synonyms": synonyms, "include_documentation": documentation}
            response = await self._cluster.request(connection, DESCRIBE_CONFIGS, body)
            return {each: _entries(each, row) for each, row in _by_resource(response["results"], share)}

        return await self._at_owners(resources, send, timeout_s)

    async def describe_config(
        self,
        resource: ConfigResource,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> Mapping[str, ConfigEntry]:
        """Return the configurations of one resource, by name.

        :raise BrokerRefused: the resource does not exist.
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
        """Change configurations (KIP-339); the changes of one resource are applied atomically.

        :param validate_only: only validate the changes; change nothing.
        """
        rows = {resource: [change_row(change) for change in each] for resource, each in changes.items()}
        return await self._alter(INCREMENTAL_ALTER_CONFIGS, rows, validate_only, timeout_s)

    async def alter_config(
        self,
        resource: ConfigResource,
        changes: Iterable[ConfigChange],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change the configurations of one resource.

        :raise BrokerRefused: a name or value is invalid; nothing was changed.
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
        """Replace all configurations of resources; those not in ``configs`` are reset to their defaults."""
        rows = {
            resource: [{"name": name, "value": value} for name, value in settings.items()]
            for resource, settings in configs.items()
        }
        return await self._alter(ALTER_CONFIGS, rows, validate_only, timeout_s)

    async def _alter(
        self, api: Api, changes: Mapping[ConfigResource, list[Any]], validate_only: bool, timeout_s: float | None
    ) -> Outcomes[ConfigResource, None]:
        async def send(connection: BrokerConnection, share: list[ConfigResource]) -> Results[ConfigResource, None]:
            rows = [resource_row(each, configs=changes[each]) for each in share]
            response = await self._cluster.request(connection, api, {"resources": rows, "validate_only": validate_only})
            responses = _by_resource(response["responses"], share)
            return {each: outcome(row, f"configs of {each}") for each, row in responses}

        return await self._at_owners(changes, send, timeout_s)

    async def _at_owners(
        self, resources: Iterable[ConfigResource], send: Any, timeout_s: float | None
    ) -> Outcomes[ConfigResource, Any]:
        """Send requests for the configurations of a broker to that broker, and all others to the controller."""

        async def attempt(remaining: list[ConfigResource]) -> Results[ConfigResource, Any]:
            view = await self._cluster.refresh()
            owners = {each: _owner(each, view.controller_id) for each in remaining}
            return await self._send_each(owners, self._cluster.connection, send)

        return await self.settle(resources, attempt, timeout_s, final=UNKNOWN)


def _entries(resource: ConfigResource, row: dict[str, Any]) -> Mapping[str, ConfigEntry] | ClientError:
    error = outcome(row, f"settings of {resource}")
    return error if error is not None else {each["name"]: parse_entry(each) for each in row["configs"]}


def _owner(resource: ConfigResource, controller_id: int) -> int:
    is_broker = resource.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and resource.name
    return int(resource.name) if is_broker else controller_id


def _by_resource(
    rows: Iterable[dict[str, Any]], requested: Iterable[ConfigResource]
) -> list[tuple[ConfigResource, dict[str, Any]]]:
    rows_by_resource = {(row["resource_type"], row["resource_name"]): row for row in rows}
    return [
        (each, rows_by_resource[each.kind, each.name])
        for each in requested
        if (each.kind, each.name) in rows_by_resource
    ]
