"""ListConfigResources (key 74): names of the resources that can have settings (KIP-714, KIP-1142)."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.membership import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, TOPIC_RESOURCE
from kreplica.membership.settings.client_metrics import ClientMetrics
from kreplica.runtime.slices import Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.settings.resources import NAMES

ROWS_AT_ONCE = 500
"""Number of rows built in one step."""


class ListConfigResources:
    """Lists topics, brokers and client metrics subscriptions; version 0 lists only subscriptions.

    Loggers and groups are valid types, but have no settings, so none are listed.
    """

    def __init__(self, subscriptions: ClientMetrics, metadata: MetadataCache) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[dict[str, Any]]:
        types = dict.fromkeys(request.body["resource_types"] or NAMES) if request.version else [CLIENT_METRICS_RESOURCE]
        if any(each not in NAMES for each in types):
            return {"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "config_resources": []}
        rows = []
        for each in types:
            for name in self._names(each):
                rows.append({"resource_name": name, "resource_type": each})
                if len(rows) % ROWS_AT_ONCE == 0:
                    yield
        return {"error_code": 0, "config_resources": rows}

    def _names(self, resource_type: int) -> list[str]:
        if resource_type == TOPIC_RESOURCE:
            return list(self._metadata.topics)
        if resource_type == BROKER_RESOURCE:
            return [str(broker_id) for broker_id in self._metadata.brokers]
        return self._subscriptions.names if resource_type == CLIENT_METRICS_RESOURCE else []
