"""DescribeConfigs (key 32): settings of topics, brokers and client metrics subscriptions, with their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, TOPIC_RESOURCE, DynamicSettings
from kreplica.runtime.slices import Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.settings.client_metrics import describe_client_metrics
from kreplica.settings.dynamic import ConfigRow
from kreplica.settings.resources import unsupported_resource_error

Row = dict[str, Any]


class DescribeConfigs:
    """Responds for topics and for this broker; each other broker must be asked for its own settings."""

    def __init__(self, settings: DynamicSettings, metadata: MetadataCache) -> None:
        self._settings = settings
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[Row]:
        with_synonyms = request.body.get("include_synonyms", False)
        with_documentation = request.body.get("include_documentation", False)
        results = []
        for resource in request.body["resources"]:
            row: Row = {
                "error_code": 0,
                "error_message": None,
                "resource_type": resource["resource_type"],
                "resource_name": resource["resource_name"],
                "configs": [],
            }
            try:
                rows = self._describe(resource["resource_type"], resource["resource_name"])
            except KafkaError as error:
                row |= {"error_code": int(error.code), "error_message": error.message or None}
            else:
                requested = resource["configuration_keys"]
                requested_names = None if requested is None else set(requested)
                row["configs"] = [
                    _config(config, with_synonyms, with_documentation)
                    for config in rows
                    if requested_names is None or config.name in requested_names
                ]
            results.append(row)
            yield
        return {"results": results}

    def _describe(self, resource_type: int, name: str) -> Sequence[ConfigRow]:
        if resource_type == TOPIC_RESOURCE:
            if name not in self._metadata.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} does not exist")
            return self._settings.describe_topic(name)
        if resource_type == BROKER_RESOURCE:
            return self._settings.describe_broker(name)
        if resource_type == CLIENT_METRICS_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a subscription must not be empty")
            own = self._settings.client_metrics.settings(name)
            return [row for row in describe_client_metrics(own) if row.name in own]  # without defaults, as in Kafka
        raise unsupported_resource_error(resource_type)


def _config(row: ConfigRow, with_synonyms: bool, with_documentation: bool) -> Row:
    return {
        "name": row.name,
        "value": row.value,
        "read_only": row.read_only,
        "is_default": row.is_default,
        "config_source": int(row.source),
        "is_sensitive": row.is_sensitive,
        "synonyms": [
            {"name": name, "value": value, "source": int(source)}
            for name, value, source in (row.synonyms if with_synonyms else ())
        ],
        "config_type": row.config_type,
        "documentation": row.documentation if with_documentation else None,
    }
