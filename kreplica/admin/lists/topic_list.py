"""The list of topics: columns of the metadata, of settings, and of the load on all brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.counts import CachedCounts, TopicCounts, counts_of
from kreplica.admin.cluster_state.published_metadata import (
    PublishedMetadata,
    PublishedTopic,
    is_offline,
    once_complete,
)
from kreplica.admin.cluster_state.topic_znodes import TopicZnodes
from kreplica.admin.http.api import Call, JsonResponse
from kreplica.admin.http.callers import topic as topic_resource
from kreplica.admin.http.schemas import (
    BOOLEAN,
    BROKER_ID,
    COUNT,
    RATE_OR_NULL,
    STRING,
    listing,
    nullable,
    one_of,
    record,
)
from kreplica.admin.lists.columns import Column, Columns, Selection
from kreplica.admin.lists.pages import ValueOf, keys_with, read_page
from kreplica.admin.load.group_loads import GroupLoads
from kreplica.admin.load.shared_loads import Load
from kreplica.admin.load.topic_loads import TopicLoad, TopicLoads
from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.cluster.uuids import uuid_text
from kreplica.interfaces.authorization import Operation
from kreplica.runtime import Reactor

LOAD, GROUPS, DELETIONS = "load", "groups", "deletions"
"""Sources of columns: other brokers' tables of topics and groups, and a znode."""

HEALTH = ("deleting", "offline", "under_min_isr", "under_replicated", "healthy")

MEMBERS = {
    "name": STRING,
    "topic_id": {**STRING, "description": "The topic ID as shown by Kafka's tools."},
    "partitions": COUNT,
    "replication_factor": {**COUNT, "description": "Maximum number of replicas of a partition."},
    "is_internal": BOOLEAN,
    "offline_partitions": {**COUNT, "description": "Number of partitions without a leader."},
    "under_replicated_partitions": {**COUNT, "description": "Number of partitions with a replica out of sync."},
    "under_min_isr_partitions": {**COUNT, "description": "Number of partitions that reject acks=all."},
    "deleting": {**nullable(BOOLEAN), "description": "Null if this broker cannot reach ZooKeeper."},
}
"""Columns of every response."""

_UNKNOWN = "Null if a leader's broker did not respond."

_SETTINGS = {
    "cleanup_policy": {**STRING, "description": "`delete`, `compact` or `compact,delete`."},
    "retention_ms": {"type": "integer", "description": "`retention.ms`; -1 for no limit."},
    "retention_bytes": {"type": "integer", "description": "`retention.bytes` of a partition; -1 for no limit."},
    "min_insync_replicas": COUNT,
}

_LOADS = {
    "records": {
        **nullable(COUNT),
        "description": f"Span of offsets from the log start to the high watermark; compaction leaves gaps. {_UNKNOWN}",
    },
    "size_bytes": {**nullable(COUNT), "description": f"Size of the leaders' logs. {_UNKNOWN}"},
    "disk_bytes": {**nullable(COUNT), "description": f"Size of all replicas. {_UNKNOWN}"},
    "records_in_rate": {**RATE_OR_NULL, "description": f"Records written per second, measured recently. {_UNKNOWN}"},
    "bytes_in_rate": {**RATE_OR_NULL, "description": f"Bytes written per second, as stored. {_UNKNOWN}"},
    "bytes_out_rate": {**RATE_OR_NULL, "description": f"Bytes read per second by consumers. {_UNKNOWN}"},
}

_ON_BROKER = record({"broker_id": BROKER_ID, "leaders": COUNT, "replicas": COUNT}, title="TopicOnBroker")

COLUMNS = Columns(
    "name",
    [
        *(
            Column(name, schema, DELETIONS if name == "deleting" else "", is_default=True)
            for name, schema in MEMBERS.items()
        ),
        Column(
            "health",
            {**one_of(*HEALTH), "description": "The worst state of its partitions, or `deleting`."},
            DELETIONS,
        ),
        *(Column(name, schema) for name, schema in _SETTINGS.items()),
        *(Column(name, schema, LOAD) for name, schema in _LOADS.items()),
        Column(
            "groups",
            {**nullable(COUNT), "description": "Consumer groups with committed offsets or subscriptions."},
            GROUPS,
        ),
        Column("brokers", {**listing(_ON_BROKER), "description": "Leaders and replicas by broker."}),
    ],
)


class TopicSettings(Protocol):
    """Effective settings of a topic."""

    @property
    def retention_ms(self) -> int: ...

    @property
    def retention_bytes(self) -> int: ...

    @property
    def cleanup_policy(self) -> frozenset[str]: ...


class Settings(Protocol):
    """Effective settings of all topics, which every broker has in memory."""

    def log_config(self, topic: str) -> TopicSettings: ...

    def min_insync_replicas(self, topic: str) -> int: ...


class TopicList:
    """Reads pages of the list."""

    def __init__(
        self,
        reactor: Reactor,
        published: PublishedMetadata,
        znodes: TopicZnodes,
        counts: CachedCounts,
        settings: Settings,
        loads: TopicLoads,
        groups: GroupLoads,
    ) -> None:
        self._reactor = reactor
        self._published = published
        self._znodes = znodes
        self._counts = counts
        self._settings = settings
        self._loads = loads
        self._groups = groups

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/topics``."""
        selection = COLUMNS.selection(call)
        topics = dict((await once_complete(self._published)).topics)
        search = (call.query["search"] or "").lower()

        def is_visible(name: str) -> bool:
            return (
                search in name.lower()
                and (call.query["internal"] or name not in INTERNAL_TOPICS)
                and call.caller.may(Operation.DESCRIBE, topic_resource(name))
            )

        names = await keys_with(self._reactor, sorted(topics), is_visible)
        values, problems = await self._values(call, selection, topics)
        page = await read_page(self._reactor, names, call, selection, values)
        return JsonResponse(
            {"topics": page.rows, "next": page.following, "total": page.total, "problems": list(problems)}
        )

    async def _values(
        self, call: Call, selection: Selection, topics: Mapping[str, PublishedTopic]
    ) -> tuple[dict[str, ValueOf], Sequence[str]]:
        counted = (await self._counts.current()).topics

        def counts(name: str) -> TopicCounts:
            return counted.get(name) or counts_of(topics[name], self._settings.min_insync_replicas(name))

        values: dict[str, ValueOf] = {
            "name": str,
            "topic_id": lambda name: uuid_text(topics[name].topic_id),
            "is_internal": lambda name: name in INTERNAL_TOPICS,
            "partitions": lambda name: counts(name).partitions,
            "replication_factor": lambda name: counts(name).replication_factor,
            "offline_partitions": lambda name: counts(name).offline_partitions,
            "under_replicated_partitions": lambda name: counts(name).under_replicated_partitions,
            "under_min_isr_partitions": lambda name: counts(name).under_min_isr_partitions,
            "brokers": lambda name: _on_brokers(topics[name].partitions.values()),
            **self._settings_values(),
        }
        problems: dict[str, None] = {}
        if selection.needs(DELETIONS):
            deleting = await self._znodes.deleting()
            values["deleting"] = lambda name: None if deleting is None else name in deleting
            values["health"] = lambda name: health(counts(name), is_deleting=deleting is not None and name in deleting)
        if selection.needs(LOAD):
            load = await self._loads.all(call)
            problems.update(dict.fromkeys(load.problems))
            values |= _load_values(load, counts)
        if selection.needs(GROUPS):
            groups = await self._groups.all(call)
            problems.update(dict.fromkeys(groups.problems))
            readers = groups.content.readers
            values["groups"] = lambda name: None if groups.problems else readers.get(name, 0)
        return values, list(problems)

    def _settings_values(self) -> dict[str, ValueOf]:
        config = self._settings.log_config
        return {
            "cleanup_policy": lambda name: ",".join(sorted(config(name).cleanup_policy)),
            "retention_ms": lambda name: config(name).retention_ms,
            "retention_bytes": lambda name: config(name).retention_bytes,
            "min_insync_replicas": self._settings.min_insync_replicas,
        }


def health(counts: TopicCounts, *, is_deleting: bool) -> str:
    """Return the worst state of a topic's partitions."""
    states = (
        is_deleting,
        counts.offline_partitions,
        counts.under_min_isr_partitions,
        counts.under_replicated_partitions,
    )
    return next((name for name, applies in zip(HEALTH, states, strict=False) if applies), HEALTH[-1])


def _load_values(
    load: Load[Mapping[str, TopicLoad]], counts: Callable[[str], TopicCounts]
) -> dict[str, Callable[[str], Any]]:
    nothing = TopicLoad()

    def of(name: str) -> TopicLoad | None:
        """Return the load of a topic; None if it lacks partitions, because a broker did not respond."""
        found = load.content.get(name, nothing)
        if load.problems and found.leaders < counts(name).partitions - counts(name).offline_partitions:
            return None
        return found

    def value_of(column: str) -> Callable[[str], Any]:
        index = TopicLoad._fields.index(column)

        def value(name: str) -> Any:
            found = of(name)
            return None if found is None else round(found[index], 2)

        return value

    return {column: value_of(column) for column in _LOADS}


def _on_brokers(partitions: Any) -> list[dict[str, int]]:
    found: dict[int, list[int]] = {}
    for partition in partitions:
        for replica in partition.replicas:
            found.setdefault(replica, [0, 0])[1] += 1
        if not is_offline(partition):
            found.setdefault(partition.leader, [0, 0])[0] += 1
    return [
        {"broker_id": broker_id, "leaders": leaders, "replicas": replicas}
        for broker_id, (leaders, replicas) in sorted(found.items())
    ]
