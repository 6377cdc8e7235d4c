"""CreatePartitions (key 37): adds partitions to topics; each topic has its own result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_LEADER
from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.server.handlers.topics.topic_results import gather_by_topic
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result

Row = dict[str, Any]


class CreatePartitions:
    def __init__(self, topics: TopicAdmin, metadata: MetadataCache, is_controller: Callable[[], bool]) -> None:
        self._topics = topics
        self._metadata = metadata
        self._is_controller = is_controller

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> Row:
        body = request.body
        counts = Counter(row["name"] for row in body["topics"])
        unique = {row["name"]: row for row in body["topics"]}

        async def add(row: Row) -> Row:
            if not self._is_controller():
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
            if counts[row["name"]] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{row['name']!r} appears in the request more than once")
            await self._grow(row, body["validate_only"], body["timeout_ms"] / 1000)
            return {"name": row["name"], "error_code": 0, "error_message": None}

        return {"results": await gather_by_topic(request, unique.values(), add, _error_row)}

    async def _grow(self, row: Row, validate_only: bool, timeout_s: float) -> None:
        name, count = row["name"], row["count"]
        assignments = row["assignments"]
        chosen = None if assignments is None else [tuple(a["broker_ids"]) for a in assignments]
        await self._topics.add_partitions(name, count, chosen, dry_run=validate_only)

        def all_have_leaders() -> bool:
            topic = self._metadata.topic(name)
            return (
                topic is not None
                and len(topic.partitions) >= count
                and all(partition.leader != NO_LEADER for partition in topic.partitions.values())
            )

        if not validate_only and not await self._metadata.wait_until(all_have_leaders, timeout_s):
            text = "the partitions were created, but not all of them have a leader yet"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)


def _error_row(row: Row, error: KafkaError) -> Row:
    return {"name": row["name"], "error_code": int(error.code), "error_message": error.message or None}
