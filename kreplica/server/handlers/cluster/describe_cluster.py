"""DescribeCluster (key 60): returns the cluster ID, the controller and the brokers."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.server.authorization.authorized_operations import AuthorizedOperations
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request

BROKERS = 1
"""Endpoint type of brokers; the other type, controllers, exists only in clusters without ZooKeeper."""


class DescribeCluster:
    """Responds with the live brokers; with ZooKeeper a broker is either registered or not, never fenced."""

    def __init__(self, metadata: MetadataCache, operations: AuthorizedOperations) -> None:
        self._metadata = metadata
        self._operations = operations

    def __call__(self, request: Request) -> None:
        requested = request.body.get("endpoint_type", BROKERS)
        response: dict[str, Any] = {
            "cluster_id": self._metadata.cluster_id,
            "controller_id": self._metadata.controller_id,
            "brokers": [],
        }
        if requested != BROKERS:
            request.respond(
                response
                | {
                    "error_code": int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
                    "error_message": f"endpoint type {requested} is not served: only brokers (1) have endpoints here",
                    "endpoint_type": requested,
                }
            )
            return
        response["brokers"] = [
            {"broker_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker, endpoint in self._metadata.live_on(request.connection.listener)
        ]
        if request.body["include_cluster_authorized_operations"]:
            response["cluster_authorized_operations"] = self._operations.on_cluster(request)
        request.respond(response)
