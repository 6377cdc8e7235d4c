"""Brokers of the cluster, their API versions, and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kreplica.client_core.addresses import Address
from kreplica.client_core.admin.operations import NO_OPERATIONS, AclOperation, parse_operations
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import RequestRouter, supports
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import check
from kreplica.client_core.metadata import BrokerView
from kreplica.client_core.negotiation import CLIENT_SOFTWARE
from kreplica.wire.messages import API_VERSIONS, APIS, DESCRIBE_CLUSTER, METADATA


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its live brokers.

    :param controller_id: -1 if unknown; if the cluster runs without ZooKeeper, the id of any broker, which forwards
        requests to the controller.
    :param brokers: live brokers by id.
    :param operations: authorized operations; None if not in the response.
    """

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerView]
    operations: frozenset[AclOperation] | None = None


class Levels(NamedTuple):
    """A range of levels or versions."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a cluster (KIP-584).

    :param supported: ranges that the responding broker supports, by feature.
    :param finalized: ranges in effect, by feature.
    :param epoch: version of the finalized features; -1 if not in the response.
    """

    supported: Mapping[str, Levels] = field(default_factory=dict)
    finalized: Mapping[str, Levels] = field(default_factory=dict)
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """API versions of a broker.

    :param apis: API name -> versions, for APIs that this client knows.
    :param unknown: API key -> versions, for other APIs.
    """

    apis: Mapping[str, Levels]
    unknown: Mapping[int, Levels]


class Brokers(RequestRouter):
    """Requests about the cluster."""

    async def describe_cluster(self, *, operations: bool = False, timeout_s: float | None = None) -> ClusterDescription:
        """Return the cluster id, the controller and the live brokers.

        :param operations: include the operations that the client is authorized to perform.
        :raise ClientError: no broker responded.
        """

        async def send(connection: BrokerConnection) -> ClusterDescription:
            if supports(connection, DESCRIBE_CLUSTER):
                body: dict[str, Any] = {"include_cluster_authorized_operations": operations}
                response = await self._cluster.request(connection, DESCRIBE_CLUSTER, body)
                check(response, "the cluster")
                brokers = {row["broker_id"]: _broker(row["broker_id"], row) for row in response["brokers"]}
            else:
                body = {"topics": [], "include_cluster_authorized_operations": operations}
                response = await self._cluster.request(connection, METADATA, body)
                brokers = {row["node_id"]: _broker(row["node_id"], row) for row in response["brokers"]}
            return ClusterDescription(
                response.get("cluster_id"),
                response["controller_id"],
                dict(sorted(brokers.items())),
                parse_operations(response.get("cluster_authorized_operations", NO_OPERATIONS)),
            )

        return await self._cluster.retrying(lambda: self._cluster.at_any(send), timeout_s)

    async def describe_features(self, *, timeout_s: float | None = None) -> Features:
        """Return the supported and finalized features.

        :raise ClientError: no broker responded.
        """

        async def send() -> Features:
            response = await self._cluster.request_any(API_VERSIONS, CLIENT_SOFTWARE)
            check(response, "versions")
            return Features(
                {row["name"]: Levels(row["min_version"], row["max_version"]) for row in _rows(response, "supported")},
                {
                    row["name"]: Levels(row["min_version_level"], row["max_version_level"])
                    for row in _rows(response, "finalized")
                },
                response.get("finalized_features_epoch", -1),
            )

        return await self._cluster.retrying(send, timeout_s)

    async def broker_versions(
        self, brokers: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> Outcomes[int, BrokerVersions]:
        """Return the API versions of brokers.

        :param brokers: ids of brokers; None means all live brokers.
        """

        async def send(connection: BrokerConnection) -> BrokerVersions:
            levels = {key: Levels(*versions) for key, versions in sorted(connection.versions.items())}
            return BrokerVersions(
                {APIS[key].name: each for key, each in levels.items() if key in APIS},
                {key: each for key, each in levels.items() if key not in APIS},
            )

        return await self.at_brokers(brokers, send, timeout_s)


def _broker(broker_id: int, row: dict[str, Any]) -> BrokerView:
    return BrokerView(broker_id, Address(row["host"], row["port"]), row.get("rack"))


def _rows(response: dict[str, Any], which: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = response.get(f"{which}_features") or []
    return rows
