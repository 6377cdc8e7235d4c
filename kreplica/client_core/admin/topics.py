"""Creates, describes, expands and deletes topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from kreplica.client_core.admin.operations import NO_OPERATIONS, AclOperation, parse_operations
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import (
    SERVER_TIMEOUT_MS,
    UNKNOWN,
    RequestRouter,
    Results,
    outcome,
    require_version,
    supports,
)
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.configs import ConfigEntry, parse_entry
from kreplica.client_core.errors import BrokerRefused, ClientError, LeaderUnknown
from kreplica.client_core.topics import BROKERS_DEFAULT, NewTopic, new_topic_row
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID
from kreplica.wire.messages import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)

V = TypeVar("V")

DELETED_BY_ID_FROM = 6
DESCRIBED_BY_ID_FROM = 12
"""First versions of DeleteTopics and Metadata that support topic ids (KIP-516)."""

PAGE_PARTITIONS = 2000


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created or validated.

    :param topic_id: zero if the topic was only validated or the id is not in the response.
    :param partitions: number of partitions; like ``replication_factor``, -1 if not in the response.
    :param configs: configurations by name; empty if not in the response.
    """

    name: str
    topic_id: UUID = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in the result of ``list_topics``."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition and its replicas.

    :param leader: ``NO_LEADER`` if there is none.
    :param eligible_leaders: eligible leader replicas (KIP-966); None if not in the response.
    """

    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions, in ascending order of number.

    :param operations: authorized operations; None if not in the response.
    """

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    operations: frozenset[AclOperation] | None = None


class Topics(RequestRouter):
    """Requests for topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics and wait until their partitions have leaders.

        A topic that exists after a lost response is considered created.

        :param validate_only: only validate the request; create nothing.
        :return: outcomes by topic name.
        """
        requested = {topic.name: topic for topic in topics}

        async def send(connection: BrokerConnection, names: list[str]) -> Results[str, CreatedTopic]:
            rows = [new_topic_row(requested[name]) for name in names]
            body = {"topics": rows, "timeout_ms": SERVER_TIMEOUT_MS, "validate_only": validate_only}
            response = await self._cluster.request(connection, CREATE_TOPICS, body)
            return {row["name"]: _created_topic(row) for row in response["topics"]}

        async def reconcile(name: str, error: BrokerRefused) -> CreatedTopic | ClientError:
            return CreatedTopic(name) if error.code is ErrorCode.TOPIC_ALREADY_EXISTS else error

        created = await self.at_controller(requested, send, timeout_s, reconcile=None if validate_only else reconcile)
        if not validate_only:
            await self._wait_for_leaders(
                {each.name: max(each.partitions, 1) for each in created.succeeded.values()}, timeout_s
            )
        return created

    async def create_topic(
        self,
        name: str,
        partitions: int = BROKERS_DEFAULT,
        replication_factor: int = BROKERS_DEFAULT,
        configs: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> CreatedTopic:
        """Create a topic and wait until its partitions have leaders.

        :raise BrokerRefused: the topic already exists, or the controller rejected the request.
        """
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return (await self.create_topics([topic], timeout_s=timeout_s))[name]

    async def _wait_for_leaders(self, counts: Mapping[str, int], timeout_s: float | None) -> None:
        """Wait until, in each topic, the given number of partitions have leaders."""

        async def check_leaders() -> None:
            self._cluster.mark_stale()
            view = await self._cluster.refresh(counts)
            for name, count in counts.items():
                topic = view.topics.get(name)
                with_leader = sum(each.leader != NO_LEADER for each in topic.partitions) if topic is not None else 0
                needed = max(count, len(topic.partitions)) if topic is not None else count
                if with_leader < needed:
                    raise LeaderUnknown(f"{with_leader} of {needed} partitions of topic {name} have leaders")

        if counts:
            await self._cluster.retrying(check_leaders, timeout_s)

    async def delete_topics(
        self, topics: Iterable[str | UUID], *, timeout_s: float | None = None
    ) -> Outcomes[str | UUID, None]:
        """Delete topics.

        :param topics: names or ids (KIP-516).
        """

        async def send(connection: BrokerConnection, items: list[str | UUID]) -> Results[str | UUID, None]:
            ids = [item for item in items if isinstance(item, UUID)]
            if ids:
                require_version(connection, DELETE_TOPICS, DELETED_BY_ID_FROM, "topic ids")
            names = [item for item in items if item not in ids]
            rows = [_topic_reference(item) for item in items]
            body = {"topics": rows, "topic_names": names, "timeout_ms": SERVER_TIMEOUT_MS}
            response = await self._cluster.request(connection, DELETE_TOPICS, body)
            return _by_name_and_id(response["responses"], lambda row: outcome(row, f"topic {_name_or_id(row)}"))

        async def reconcile(_: str | UUID, error: BrokerRefused) -> ClientError | None:
            return None if error.code in UNKNOWN else error

        deleted = await self.at_controller(topics, send, timeout_s, reconcile=reconcile)
        self._cluster.mark_stale()
        return deleted

    async def delete_topic(self, topic: str | UUID, *, timeout_s: float | None = None) -> None:
        """Delete a topic.

        :raise BrokerRefused: the topic does not exist or cannot be deleted.
        """
        (await self.delete_topics([topic], timeout_s=timeout_s)).raise_first()

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[str, None]:
        """Increase the number of partitions of topics; each topic has its own outcome.

        :param counts: topic -> new total number of partitions.
        :param assignments: topic -> brokers of each new partition's replicas; for other topics, the controller chooses
            the brokers.
        """
        chosen = assignments or {}

        def row(name: str) -> dict[str, Any]:
            brokers = chosen.get(name)
            rows = None if brokers is None else [{"broker_ids": list(each)} for each in brokers]
            return {"name": name, "count": counts[name], "assignments": rows}

        async def send(connection: BrokerConnection, names: list[str]) -> Results[str, None]:
            rows = [row(name) for name in names]
            body = {"topics": rows, "timeout_ms": SERVER_TIMEOUT_MS, "validate_only": validate_only}
            response = await self._cluster.request(connection, CREATE_PARTITIONS, body)
            return {row["name"]: outcome(row, f"partitions of topic {row['name']}") for row in response["results"]}

        async def reconcile(name: str, error: BrokerRefused) -> ClientError | None:
            topic = (await self._cluster.refresh((name,))).topics.get(name)
            return None if topic is not None and len(topic.partitions) == counts[name] else error

        expanded = await self.at_controller(counts, send, timeout_s, reconcile=None if validate_only else reconcile)
        if not validate_only:
            await self._wait_for_leaders({name: counts[name] for name in expanded.succeeded}, timeout_s)
        return expanded

    async def list_topics(self, *, internal: bool = False, timeout_s: float | None = None) -> list[TopicListing]:
        """Return all topics, sorted by name.

        :param internal: include internal topics, such as ``__consumer_offsets``.
        """
        view = await self._cluster.retrying(lambda: self._cluster.refresh(None), timeout_s)
        return [
            TopicListing(name, topic.topic_id, topic.is_internal, len(topic.partitions))
            for name, topic in sorted(view.topics.items())
            if internal or not topic.is_internal
        ]

    async def describe_topics(
        self, topics: Iterable[str | UUID], *, operations: bool = False, timeout_s: float | None = None
    ) -> Outcomes[str | UUID, TopicDescription]:
        """Describe topics.

        Topics given by name are requested page by page if the broker supports it (KIP-966).

        :param topics: names or ids.
        :param operations: include the operations that the client is authorized to perform.
        """

        async def attempt(items: list[str | UUID]) -> Results[str | UUID, TopicDescription]:
            return await self._cluster.at_any(lambda connection: self._describe(connection, items, operations))

        return await self.settle(topics, attempt, timeout_s, final=UNKNOWN)

    async def describe_topic(self, topic: str | UUID, *, timeout_s: float | None = None) -> TopicDescription:
        """Describe a topic.

        :raise BrokerRefused: the topic does not exist.
        """
        return (await self.describe_topics([topic], timeout_s=timeout_s))[topic]

    async def _describe(
        self, connection: BrokerConnection, items: list[str | UUID], operations: bool
    ) -> Results[str | UUID, TopicDescription]:
        names = [item for item in items if isinstance(item, str)]
        ids = [item for item in items if isinstance(item, UUID)]
        if not ids and supports(connection, DESCRIBE_TOPIC_PARTITIONS):
            return {row["name"]: _topic_description(row) for row in await self._pages(connection, names)}
        if ids:
            require_version(connection, METADATA, DESCRIBED_BY_ID_FROM, "topic ids")
        body = {
            "topics": [_topic_reference(item) for item in items],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": operations,
        }
        response = await self._cluster.request(connection, METADATA, body)
        return _by_name_and_id(response["topics"], _topic_description)

    async def _pages(self, connection: BrokerConnection, names: Sequence[str]) -> list[dict[str, Any]]:
        """Request all pages of DescribeTopicPartitions; return one row per topic."""
        rows: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            remaining = [name for name in sorted(names) if cursor is None or name >= cursor["topic_name"]]
            body = {
                "topics": [{"name": name} for name in remaining],
                "response_partition_limit": PAGE_PARTITIONS,
                "cursor": cursor,
            }
            response = await self._cluster.request(connection, DESCRIBE_TOPIC_PARTITIONS, body)
            for row in response["topics"]:
                known = rows.setdefault(row["name"], row)
                if known is not row:
                    known["partitions"].extend(row["partitions"])
            cursor = response["next_cursor"]
            if cursor is None:
                return list(rows.values())


def _topic_reference(topic: str | UUID) -> dict[str, Any]:
    """Return the fields that identify a topic by name or id in requests."""
    return {"name": None, "topic_id": topic} if isinstance(topic, UUID) else {"name": topic, "topic_id": ZERO_UUID}


def _by_name_and_id(rows: Iterable[dict[str, Any]], parse: Callable[[dict[str, Any]], V]) -> dict[str | UUID, V]:
    """Return the parsed rows of a response, by name and by id."""
    parsed_rows: dict[str | UUID, V] = {}
    for row in rows:
        parsed_rows[row["name"]] = parsed_rows[row.get("topic_id", ZERO_UUID)] = parse(row)
    return parsed_rows


def _name_or_id(row: dict[str, Any]) -> str:
    return str(row["name"] or row.get("topic_id"))


def _created_topic(row: dict[str, Any]) -> CreatedTopic | ClientError:
    error = outcome(row, f"topic {row['name']}")
    if error is not None:
        return error
    return CreatedTopic(
        row["name"],
        row.get("topic_id", ZERO_UUID),
        row.get("num_partitions", -1),
        row.get("replication_factor", -1),
        {each["name"]: parse_entry(each) for each in row.get("configs") or ()},
    )


def _topic_description(row: dict[str, Any]) -> TopicDescription | ClientError:
    error = outcome(row, f"topic {_name_or_id(row)}")
    if error is not None:
        return error
    partitions = sorted((_partition(each) for each in row["partitions"]), key=lambda each: each.partition)
    topic_id = row.get("topic_id", ZERO_UUID)
    operations = parse_operations(row.get("topic_authorized_operations", NO_OPERATIONS))
    return TopicDescription(row["name"], topic_id, row.get("is_internal", False), tuple(partitions), operations)


def _partition(row: dict[str, Any]) -> PartitionDescription:
    eligible = row.get("eligible_leader_replicas")
    return PartitionDescription(
        row["partition_index"],
        row["leader_id"],
        row.get("leader_epoch", NO_EPOCH),
        tuple(row["replica_nodes"]),
        tuple(row["isr_nodes"]),
        tuple(row.get("offline_replicas", ())),
        None if eligible is None else tuple(eligible),
    )
