"""``/v1/cluster``: a summary of the cluster from the metadata of this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kreplica import __version__
from kreplica.admin.cluster_state.published_metadata import PublishedMetadata, once_complete
from kreplica.admin.cluster_state.topic_znodes import read_if_connected
from kreplica.admin.health.cluster_health import ClusterHealth
from kreplica.admin.health.schemas import HEALTH
from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, STRING, listing, nullable, record
from kreplica.cluster import documents, znodes
from kreplica.runtime import Reactor
from kreplica.zookeeper import ZooKeeperClient

CLUSTER = record(
    {
        "cluster_id": STRING,
        "kreplica_version": STRING,
        "broker_id": {**BROKER_ID, "description": "The broker that sent the response."},
        "controller": record(
            {
                "broker_id": {**nullable(BROKER_ID), "description": "Null until a controller is known."},
                "epoch": {**nullable(COUNT), "description": "Null if this broker cannot reach ZooKeeper."},
            }
        ),
        "live_brokers": listing(BROKER_ID),
        "cordoned_brokers": {**listing(BROKER_ID), "description": "Brokers that get no new replicas, alive or not."},
        "topics": COUNT,
        "partitions": COUNT,
        "offline_partitions": {**COUNT, "description": "As in `health`."},
        "under_replicated_partitions": {**COUNT, "description": "As in `health`."},
        "under_min_isr_partitions": {**COUNT, "description": "As in `health`."},
        "health": HEALTH,
        "zookeeper": record({"connect": STRING, "session": STRING}),
        "standalone": {**BOOLEAN, "description": "True if all brokers run in one `standalone` process."},
    },
    title="Cluster",
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this broker.

    :param connect: the setting ``zookeeper.connect``.
    """

    broker_id: int
    connect: str
    standalone: bool = False


class Cluster:
    """Returns counts from this broker's metadata, and the health report.

    :param cordoned: returns the brokers that get no new replicas.
    """

    def __init__(
        self,
        reactor: Reactor,
        published: PublishedMetadata,
        client: ZooKeeperClient,
        identity: Identity,
        health: ClusterHealth,
        cordoned: Callable[[], Collection[int]],
    ) -> None:
        self._reactor = reactor
        self._published = published
        self._client = client
        self._identity = identity
        self._health = health
        self._cordoned = cordoned

    def routes(self) -> Sequence[Route]:
        """Return the route of the summary."""
        return (Route("GET", "/v1/cluster", self.read, "A summary of the cluster.", response=CLUSTER),)

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/cluster``."""
        published = await once_complete(self._published)
        report = await self._health.current(call)
        counts, figures = report.counts, report.figures
        controller = published.controller_id
        return JsonResponse(
            {
                "cluster_id": published.cluster_id,
                "kreplica_version": __version__,
                "broker_id": self._identity.broker_id,
                "controller": {
                    "broker_id": controller if controller >= 0 else None,
                    "epoch": await self._controller_epoch(),
                },
                "live_brokers": sorted(published.brokers),
                "cordoned_brokers": sorted(self._cordoned()),
                "topics": len(counts.topics),
                "partitions": counts.partitions,
                "offline_partitions": figures["offline_partitions"],
                "under_replicated_partitions": figures["under_replicated_partitions"],
                "under_min_isr_partitions": figures["under_min_isr_partitions"],
                "health": report.document(),
                "zookeeper": {"connect": self._identity.connect, "session": self._client.state.name.lower()},
                "standalone": self._identity.standalone,
            }
        )

    async def _controller_epoch(self) -> int | None:
        client = self._client
        found = await read_if_connected(self._reactor, client, lambda: client.get_data(znodes.CONTROLLER_EPOCH))
        return None if found is None else documents.decode_controller_epoch(found[0])
