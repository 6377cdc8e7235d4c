"""CreateTopics (key 19): the broker with the active controller responds once every partition has a leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.cluster.new_topics import NewTopic
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership import DynamicSettings
from kreplica.model import NO_LEADER, ZERO_UUID, TopicAssignment
from kreplica.runtime.slices import Steps
from kreplica.server.handlers.topics.topic_admin import NEW_PARTITIONS_MAX, TopicAdmin
from kreplica.server.handlers.topics.topic_results import gather_by_topic
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result

Row = dict[str, Any]
UNSET = -1

STEP_ROWS = 64
"""Number of topics counted in one step."""

CONFIGS_MAX = 1000
"""Maximum number of settings of a new topic in a request; about 40 exist."""


class CreateTopics:
    """Handles CreateTopics.

    :param is_controller: True if this broker is the active controller.
    """

    def __init__(
        self,
        topics: TopicAdmin,
        metadata: MetadataCache,
        settings: DynamicSettings,
        is_controller: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._metadata = metadata
        self._settings = settings
        self._is_controller = is_controller

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> Row:
        body = request.body
        rows = body["topics"]
        counts, partitions = await in_slices(request, count_rows(rows))
        validate_only = body.get("validate_only", False)

        async def create(row: Row) -> Row:
            if not self._is_controller():
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
            if counts[row["name"]] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{row['name']!r} appears in the request more than once")
            if partitions > NEW_PARTITIONS_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS, f"a request may create at most {NEW_PARTITIONS_MAX} partitions"
                )
            return await self._create(_new_topic(row), validate_only, body["timeout_ms"] / 1000)

        return {"topics": await gather_by_topic(request, _unique(rows), create, _error_row)}

    async def _create(self, topic: NewTopic, validate_only: bool, timeout_s: float) -> Row:
        planned = self._topics.plan(topic)
        if not validate_only:
            await self._topics.create(topic, planned)
            if not await self._wait_for_leaders(planned, timeout_s):
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "the topic was created, but not all its partitions have a leader yet"
                )
        return {
            "name": topic.name,
            "topic_id": ZERO_UUID if validate_only else planned.topic_id,
            "error_code": 0,
            "error_message": None,
            "num_partitions": len(planned.partitions),
            "replication_factor": len(planned.partitions[0]),
            "configs": [
                {
                    "name": config.name,
                    "value": config.value,
                    "read_only": config.read_only,
                    "config_source": int(config.source),
                    "is_sensitive": config.is_sensitive,
                }
                for config in self._settings.describe_new_topic(topic.configs or {})
            ],
        }

    def _wait_for_leaders(self, assignment: TopicAssignment, timeout_s: float) -> Deferred[bool]:
        """Wait until all partitions have a leader; False after the timeout."""

        def all_have_leaders() -> bool:
            topic = self._metadata.topic(assignment.topic)
            return (
                topic is not None
                and topic.topic_id == assignment.topic_id
                and all(
                    partition in topic.partitions and topic.partitions[partition].leader != NO_LEADER
                    for partition in assignment.partitions
                )
            )

        return self._metadata.wait_until(all_have_leaders, timeout_s)


def count_rows(rows: Sequence[Row]) -> Steps[tuple[Counter[str], int]]:
    """Return how often each name occurs, and the number of new partitions, in slices."""
    counts: Counter[str] = Counter()
    partitions = 0
    for start in range(0, len(rows), STEP_ROWS):
        for row in rows[start : start + STEP_ROWS]:
            counts[row["name"]] += 1
            partitions += max(row["num_partitions"], len(row["assignments"]), 1)
        yield
    return counts, partitions


def _unique(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the first row with each name."""
    seen = set()
    for row in rows:
        if row["name"] not in seen:
            seen.add(row["name"])
            yield row


def _new_topic(row: Row) -> NewTopic:
    if len(row["configs"]) > CONFIGS_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"a topic may be created with at most {CONFIGS_MAX} settings")
    partitions, factor = row["num_partitions"], row["replication_factor"]
    configs = {}
    for config in row["configs"]:
        if config["value"] is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the setting {config['name']!r} has no value")
        configs[config["name"]] = config["value"]
    if not row["assignments"]:
        return NewTopic(
            row["name"],
            None if partitions == UNSET else partitions,
            None if factor == UNSET else factor,
            configs=configs,
        )
    if partitions != UNSET or factor != UNSET:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "with an assignment, the partition count and the replication factor must both be -1",
        )
    assignment = {a["partition_index"]: tuple(a["broker_ids"]) for a in row["assignments"]}
    if len(assignment) != len(row["assignments"]):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    return NewTopic(row["name"], assignment=assignment, configs=configs)


def _error_row(row: Row, error: KafkaError) -> Row:
    return {
        "name": row["name"],
        "topic_id": ZERO_UUID,
        "error_code": int(error.code),
        "error_message": error.message or None,
        "configs": [],
    }
