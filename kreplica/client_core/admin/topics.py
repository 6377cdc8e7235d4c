"""Topics: making, describing, widening and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from kreplica.client_core.admin.asking import SERVER_TIMEOUT_MS, UNKNOWN, Subject, Told, has, need, outcome
from kreplica.client_core.admin.operations import NOT_TOLD, AclOperation, parse_operations
from kreplica.client_core.admin.outcomes import Outcomes
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

IDS_DELETED_FROM = 6
ASKED_BY_ID_FROM = 12
"""Versions of DeleteTopics and Metadata that take ids of topics (KIP-516)."""

PAGE_PARTITIONS = 2000


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made, or would be.

    :param topic_id: zero where it was only validated, or the broker does not say.
    :param partitions: -1 where the broker does not say; so is ``replication_factor``.
    :param configs: of the topic, by name; empty where the broker does not say.
    """

    name: str
    topic_id: UUID = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic, in a list of all."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, and who holds it.

    :param leader: ``NO_LEADER`` where nobody leads.
    :param eligible_leaders: replicas that may lead though they are not in sync (KIP-966); None where not told.
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
    """A topic, and its partitions by number, ascending.

    :param operations: what this client may do with it; None where that was not told.
    """

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    operations: frozenset[AclOperation] | None = None


class Topics(Subject):
    """Topics: making, describing, widening and deleting them."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """Make topics, each for itself, and wait until their partitions have leaders.

        A topic that is there after an answer that was lost is taken for the one that was asked for.

        :param validate_only: make nothing, but say what would come of it.
        :return: by name.
        """
        wanted = {topic.name: topic for topic in topics}

        async def ask(connection: BrokerConnection, names: list[str]) -> Told[str, CreatedTopic]:
            rows = [new_topic_row(wanted[name]) for name in names]
            body = {"topics": rows, "timeout_ms": SERVER_TIMEOUT_MS, "validate_only": validate_only}
            answer = await self._cluster.request(connection, CREATE_TOPICS, body)
            return {row["name"]: _created(row) for row in answer["topics"]}

        async def mend(name: str, error: BrokerRefused) -> CreatedTopic | ClientError:
            return CreatedTopic(name) if error.code is ErrorCode.TOPIC_ALREADY_EXISTS else error

        created = await self.at_controller(wanted, ask, timeout_s, mend=None if validate_only else mend)
        if not validate_only:
            await self._until_led(
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
        """Make a topic, and wait until its partitions have leaders.

        :raise BrokerRefused: it is there already, or refused.
        """
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return (await self.create_topics([topic], timeout_s=timeout_s))[name]

    async def _until_led(self, counts: Mapping[str, int], timeout_s: float | None) -> None:
        """Until so many partitions of topics have leaders."""

        async def led() -> None:
            self._cluster.doubt()
            view = await self._cluster.refresh(counts)
            for name, count in counts.items():
                topic = view.topics.get(name)
                count_led = sum(each.leader != NO_LEADER for each in topic.partitions) if topic is not None else 0
                needed = max(count, len(topic.partitions)) if topic is not None else count
                if count_led < needed:
                    raise LeaderUnknown(f"{count_led} of {needed} partitions of topic {name} have leaders")

        if counts:
            await self._cluster.retrying(led, timeout_s)

    async def delete_topics(
        self, topics: Iterable[str | UUID], *, timeout_s: float | None = None
    ) -> Outcomes[str | UUID, None]:
        """Delete topics, each for itself.

        :param topics: names, or ids (KIP-516).
        """

        async def ask(connection: BrokerConnection, items: list[str | UUID]) -> Told[str | UUID, None]:
            ids = [item for item in items if isinstance(item, UUID)]
            if ids:
                need(connection, DELETE_TOPICS, IDS_DELETED_FROM, "ids of topics")
            names = [item for item in items if item not in ids]
            body = {"topics": [_either(item) for item in items], "topic_names": names, "timeout_ms": SERVER_TIMEOUT_MS}
            answer = await self._cluster.request(connection, DELETE_TOPICS, body)
            return _by_name_and_id(answer["responses"], lambda row: outcome(row, f"topic {_called(row)}"))

        async def mend(_: str | UUID, error: BrokerRefused) -> ClientError | None:
            return None if error.code in UNKNOWN else error

        deleted = await self.at_controller(topics, ask, timeout_s, mend=mend)
        self._cluster.doubt()
        return deleted

    async def delete_topic(self, topic: str | UUID, *, timeout_s: float | None = None) -> None:
        """Delete a topic.

        :raise BrokerRefused: there is none, or it may not be deleted.
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
        """Give topics more partitions, each for itself.

        :param counts: topic -> how many it shall have in all.
        :param assignments: topic -> brokers of each new partition's replicas; left to the controller where not given.
        """
        chosen = assignments or {}

        def row(name: str) -> dict[str, Any]:
            brokers = chosen.get(name)
            rows = None if brokers is None else [{"broker_ids": list(each)} for each in brokers]
            return {"name": name, "count": counts[name], "assignments": rows}

        async def ask(connection: BrokerConnection, names: list[str]) -> Told[str, None]:
            rows = [row(name) for name in names]
            body = {"topics": rows, "timeout_ms": SERVER_TIMEOUT_MS, "validate_only": validate_only}
            answer = await self._cluster.request(connection, CREATE_PARTITIONS, body)
            return {row["name"]: outcome(row, f"partitions of topic {row['name']}") for row in answer["results"]}

        async def mend(name: str, error: BrokerRefused) -> ClientError | None:
            topic = (await self._cluster.refresh((name,))).topics.get(name)
            return None if topic is not None and len(topic.partitions) == counts[name] else error

        widened = await self.at_controller(counts, ask, timeout_s, mend=None if validate_only else mend)
        if not validate_only:
            await self._until_led({name: counts[name] for name in widened.succeeded}, timeout_s)
        return widened

    async def list_topics(self, *, internal: bool = False, timeout_s: float | None = None) -> list[TopicListing]:
        """All topics, by name.

        :param internal: with those that the cluster keeps for itself.
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
        """What topics look like, as some broker knows them.

        Names are asked for page by page where the broker can (KIP-966).

        :param topics: names, or ids.
        :param operations: also say what this client may do with each.
        """

        async def attempt(items: list[str | UUID]) -> Told[str | UUID, TopicDescription]:
            return await self._cluster.at_any(lambda connection: self._describe(connection, items, operations))

        return await self.settle(topics, attempt, timeout_s, final=UNKNOWN)

    async def describe_topic(self, topic: str | UUID, *, timeout_s: float | None = None) -> TopicDescription:
        """What a topic looks like.

        :raise BrokerRefused: there is none.
        """
        return (await self.describe_topics([topic], timeout_s=timeout_s))[topic]

    async def _describe(
        self, connection: BrokerConnection, items: list[str | UUID], operations: bool
    ) -> Told[str | UUID, TopicDescription]:
        names = [item for item in items if isinstance(item, str)]
        ids = [item for item in items if isinstance(item, UUID)]
        if not ids and has(connection, DESCRIBE_TOPIC_PARTITIONS):
            return {row["name"]: _described(row) for row in await self._pages(connection, names)}
        if ids:
            need(connection, METADATA, ASKED_BY_ID_FROM, "ids of topics")
        body = {
            "topics": [_either(item) for item in items],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": operations,
        }
        answer = await self._cluster.request(connection, METADATA, body)
        return _by_name_and_id(answer["topics"], _described)

    async def _pages(self, connection: BrokerConnection, names: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of topics; one that spans pages has the partitions of all."""
        rows: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            left = [name for name in sorted(names) if cursor is None or name >= cursor["topic_name"]]
            body = {
                "topics": [{"name": name} for name in left],
                "response_partition_limit": PAGE_PARTITIONS,
                "cursor": cursor,
            }
            answer = await self._cluster.request(connection, DESCRIBE_TOPIC_PARTITIONS, body)
            for row in answer["topics"]:
                known = rows.setdefault(row["name"], row)
                if known is not row:
                    known["partitions"].extend(row["partitions"])
            cursor = answer["next_cursor"]
            if cursor is None:
                return list(rows.values())


def _either(topic: str | UUID) -> dict[str, Any]:
    """A topic by its name or its id, as requests carry it."""
    return {"name": None, "topic_id": topic} if isinstance(topic, UUID) else {"name": topic, "topic_id": ZERO_UUID}


def _by_name_and_id(rows: Iterable[dict[str, Any]], parse: Callable[[dict[str, Any]], V]) -> dict[str | UUID, V]:
    """What an answer says of topics, by whichever of the two they were asked for."""
    found: dict[str | UUID, V] = {}
    for row in rows:
        found[row["name"]] = found[row.get("topic_id", ZERO_UUID)] = parse(row)
    return found


def _called(row: dict[str, Any]) -> str:
    return str(row["name"] or row.get("topic_id"))


def _created(row: dict[str, Any]) -> CreatedTopic | ClientError:
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


def _described(row: dict[str, Any]) -> TopicDescription | ClientError:
    error = outcome(row, f"topic {_called(row)}")
    if error is not None:
        return error
    partitions = sorted((_partition(each) for each in row["partitions"]), key=lambda each: each.partition)
    topic_id = row.get("topic_id", ZERO_UUID)
    operations = parse_operations(row.get("topic_authorized_operations", NOT_TOLD))
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
