"""``/v1/brokers``: live brokers, their leaders and replicas, their disks, and cordons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kreplica.admin.cluster_state.counts import BrokerCounts, CachedCounts
from kreplica.admin.cluster_state.published_metadata import BrokerConnections, PublishedMetadata, once_complete
from kreplica.admin.cluster_state.topic_znodes import read_if_connected
from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.health.cluster_health import ClusterHealth
from kreplica.admin.http.api import LIMIT, Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import (
    BOOLEAN,
    BROKER_ID,
    COUNT,
    IN_BROKER,
    INTEGER,
    STRING,
    listing,
    nullable,
    record,
    written,
)
from kreplica.admin.lists.broker_list import COLUMNS, FAULTS, HEALTH, LIVE_METRICS, MEMBERS, FaultsOf, values_of
from kreplica.admin.lists.columns import Selection
from kreplica.admin.lists.pages import read_page
from kreplica.admin.peers.registrations import Registrations
from kreplica.client.errors import ClientError
from kreplica.cluster import znodes
from kreplica.cluster.cordons import Cordon, encode_cordon
from kreplica.errors import ErrorCode
from kreplica.model import BrokerRegistration
from kreplica.runtime import Runtime
from kreplica.runtime.gather import gather
from kreplica.wire.messages import DESCRIBE_LOG_DIRS
from kreplica.zookeeper import Create, Delete, Operation, SetData, ZooKeeperClient, ZooKeeperError

REQUEST_TIMEOUT_S = 5.0
REASON_LENGTH_MAX = 1000

LOG_DIR = record(
    {
        "path": STRING,
        "error": {**nullable(STRING), "description": "Name of the Kafka error if it is offline; null if it is online."},
        "total_bytes": {**nullable(INTEGER), "description": "Size of its file system in bytes."},
        "usable_bytes": {**nullable(INTEGER), "description": "Free bytes of its file system."},
        "size_bytes": {**COUNT, "description": "Size of all its logs in bytes."},
        "partitions": {**COUNT, "description": "Number of replicas in the directory."},
    },
    title="LogDirectory",
)

PROBLEMS = {
    **listing(STRING),
    "description": "A sentence for each value that is unknown or may be outdated.",
}

CORDON = {
    "broker_id": BROKER_ID,
    "cordoned": BOOLEAN,
}

Row = dict[str, Any]

LiveMetrics = Callable[[Call], Awaitable[tuple[Mapping[int, Row], Sequence[str]]]]


class Brokers:
    """Reads live brokers from ZooKeeper and their replicas from the metadata.

    :param metrics: returns the live metrics of all brokers, and a sentence for each broker that did not respond.
    """

    def __init__(
        self,
        runtime: Runtime,
        published: PublishedMetadata,
        registrations: Registrations,
        client: ZooKeeperClient,
        connections: BrokerConnections,
        counts: CachedCounts,
        health: ClusterHealth,
        metrics: LiveMetrics,
    ) -> None:
        self._reactor = runtime.reactor
        self._metrics = metrics
        self._wall_clock_ms = runtime.wall_clock_ms
        self._published = published
        self._registrations = registrations
        self._client = client
        self._connections = connections
        self._counts = counts
        self._health = health
        self._cordoned: frozenset[int] = frozenset()
        """The cordoned brokers when ZooKeeper was read last."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of all brokers, one broker and its cordon."""
        directories = {**nullable(listing(LOG_DIR)), "description": "Null if the broker does not respond."}
        members = {"log_dirs": directories, "faults": FAULTS, "problems": PROBLEMS}
        broker = record({**MEMBERS, **members}, title="BrokerWithDirectories")
        body = record({"reason": {"type": "string", "maxLength": REASON_LENGTH_MAX}}, optional=("reason",))
        unknown = {404: "The broker does not exist."}
        path, znode = "/v1/brokers/{broker_id}/cordon", f"{znodes.CORDONED}/{{broker_id}}"
        return (
            Route(
                "GET",
                "/v1/brokers",
                self.list_all,
                "All brokers.",
                response=COLUMNS.page_schema("brokers", "Broker"),
                query=(LIMIT, *COLUMNS.parameters()),
            ),
            Route(
                "GET",
                "/v1/brokers/{broker_id}",
                self.one,
                "One broker, with its log directories and faults.",
                response=broker,
                query=(IN_BROKER,),
                problems=unknown,
            ),
            Route(
                "PUT",
                path,
                self.cordon,
                "Cordon a broker: it gets no new replicas.",
                response=written(CORDON, title="Cordoned"),
                body=body,
                query=(IN_BROKER,),
                znodes=(znode,),
                problems={**unknown, 409: "The cordon was changed concurrently."},
            ),
            Route(
                "DELETE",
                path,
                self.uncordon,
                "Uncordon a broker: it can get new replicas again.",
                response=written(CORDON, title="Cordoned"),
                query=(IN_BROKER,),
                znodes=(znode,),
                problems={**unknown, 409: "The cordon was changed concurrently."},
            ),
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/brokers``."""
        selection = COLUMNS.selection(call)
        reads: list[Coroutine[Any, Any, Any]] = [
            self._rows(),
            self._read_metrics(call, selection),
            self._read_faults(call, selection),
        ]
        (rows, problems), (metrics, silent), (faults_of, unknown) = await gather(reads)
        problems = list(dict.fromkeys([*problems, *silent, *unknown]))
        values = values_of(rows, metrics, faults_of)
        page = await read_page(self._reactor, list(rows), call, selection, values)
        return JsonResponse({"brokers": page.rows, "next": None, "total": page.total, "problems": problems})

    async def one(self, call: Call) -> JsonResponse:
        """``GET /v1/brokers/{broker_id}``."""
        broker_id = int(call.path["broker_id"])
        reads: list[Coroutine[Any, Any, Any]] = [self._rows(), self._health.current(call)]
        (rows, problems), report = await gather(reads)
        row = _row_of(rows, broker_id)
        log_dirs = await self._log_dirs(broker_id) if row["live"] else None
        faults = report.of_broker(broker_id)
        return JsonResponse({**row, "log_dirs": log_dirs, "faults": faults, "problems": problems})

    async def _read_metrics(self, call: Call, selection: Selection) -> tuple[Mapping[int, Row], Sequence[str]]:
        """Return the live metrics of all brokers if the request needs them, and why some are unknown."""
        return await self._metrics(call) if selection.needs(LIVE_METRICS) else ({}, ())

    async def _read_faults(self, call: Call, selection: Selection) -> tuple[FaultsOf, Sequence[str]]:
        """Return the faults by broker if the request needs them, and why some are unknown."""
        if not selection.needs(HEALTH):
            return lambda broker_id: (), ()
        report = await self._health.current(call)
        return report.of_broker, report.problems

    async def _rows(self) -> tuple[dict[int, Row], list[str]]:
        """Return all brokers by ID, and sentences about values that are unknown."""
        published = await once_complete(self._published)
        reads: list[Coroutine[Any, Any, Any]] = [
            self._registered_brokers(),
            self._read_cordoned(),
            self._counts.current(),
        ]
        (live, problem), cordoned, counts = await gather(reads)
        rows = {
            broker_id: {
                **_registration_row(broker_id, live.get(broker_id)),
                "is_controller": published.controller_id == broker_id,
                "cordoned": broker_id in cordoned,
                **asdict(counts.brokers.get(broker_id, BrokerCounts())),
            }
            for broker_id in sorted({*live, *counts.brokers})
        }
        return rows, [] if problem is None else [problem]

    async def _registered_brokers(self) -> Any:
        """Return the registrations, and a problem or None.

        If ZooKeeper is unreachable and was never read, the registrations are those in the metadata.
        """
        try:
            live = await self._registrations.live()
        except ZooKeeperError:
            published = {
                broker_id: BrokerRegistration(broker_id, tuple(broker.endpoints.values()), broker.rack)
                for broker_id, broker in self._published.brokers.items()
            }
            return published, "ZooKeeper does not respond: the brokers are those in the last metadata."
        return live, self._registrations.problem

    async def _read_cordoned(self) -> Any:
        names = await read_if_connected(
            self._reactor, self._client, lambda: self._client.get_children(znodes.CORDONED)
        )
        if names is not None:
            self._cordoned = frozenset(int(name) for name in names if name.isdigit())
        return self._cordoned

    async def _log_dirs(self, broker_id: int) -> list[Row] | None:
        try:
            response = await self._connections.request(
                broker_id, DESCRIBE_LOG_DIRS, {"topics": None}, timeout_s=REQUEST_TIMEOUT_S
            )
        except ClientError:
            return None
        return [_log_dir(row) for row in response["results"]]

    # --- cordon ------------------------------------------------------------------------------------------------------

    async def cordon(self, call: Call) -> JsonResponse:
        """``PUT /v1/brokers/{broker_id}/cordon``."""
        cordon = Cordon(self._wall_clock_ms(), call.body.get("reason", ""))
        return await self._change(
            call,
            lambda path: [Create(path, encode_cordon(cordon))],
            lambda path, version: [SetData(path, encode_cordon(cordon), version)],
            cordoned=True,
        )

    async def uncordon(self, call: Call) -> JsonResponse:
        """``DELETE /v1/brokers/{broker_id}/cordon``."""
        return await self._change(
            call, lambda path: [], lambda path, version: [Delete(path, version)], cordoned=False
        )

    async def _change(
        self,
        call: Call,
        absent: Callable[[str], Sequence[Operation]],
        present: Callable[[str, int], Sequence[Operation]],
        *,
        cordoned: bool,
    ) -> JsonResponse:
        """Change the cordon of a broker, depending on whether its znode exists."""
        broker_id = int(call.path["broker_id"])
        path = znodes.cordoned_path(broker_id)
        stat = await self._client.exists(path)
        if stat is None:
            _row_of((await self._rows())[0], broker_id)
        operations = absent(path) if stat is None else present(path, stat.version)
        znode_rows = await write(self._client, ZnodeWrites(operations), dry_run=call.dry_run)
        return JsonResponse(
            {"broker_id": broker_id, "cordoned": cordoned, "dry_run": call.dry_run, "znodes": znode_rows}
        )


def _row_of(rows: Mapping[int, Row], broker_id: int) -> Row:
    row = rows.get(broker_id)
    if row is None:
        broker_ids = ", ".join(map(str, rows))
        raise Problem(
            404,
            "BROKER_ID_NOT_REGISTERED",
            f"broker {broker_id} is not registered and has no replicas",
            what_to_do=f"Known brokers: {broker_ids}.",
        )
    return row


def _registration_row(broker_id: int, registration: BrokerRegistration | None) -> Row:
    if registration is None:
        unknown_members = dict.fromkeys(("rack", "broker_epoch", "registered_at_ms", "admin_url"))
        return {"broker_id": broker_id, "live": False, "endpoints": [], **unknown_members}
    return {
        "broker_id": broker_id,
        "live": True,
        "rack": registration.rack,
        "endpoints": list(map(str, registration.endpoints)),
        "broker_epoch": registration.epoch if registration.epoch >= 0 else None,
        "registered_at_ms": registration.timestamp_ms or None,
        "admin_url": registration.admin_url,
    }


def _log_dir(row: Row) -> Row:
    partitions = [partition for topic in row["topics"] for partition in topic["partitions"]]
    total, usable = row.get("total_bytes", -1), row.get("usable_bytes", -1)
    return {
        "path": row["log_dir"],
        "error": ErrorCode.of(row["error_code"]).name if row["error_code"] else None,
        "total_bytes": total if total >= 0 else None,
        "usable_bytes": usable if usable >= 0 else None,
        "size_bytes": sum(partition["partition_size"] for partition in partitions),
        "partitions": len(partitions),
    }
