"""DeleteTopics (key 20): answered by the controller when the topic is removed from ZooKeeper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import ZERO_UUID
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.server.handlers.topics.topic_results import gather_by_topic
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import answer_from, in_slices

Row = dict[str, Any]


def _counted(asked: list[Row]) -> Steps[Counter[tuple[str | None, UUID]]]:
    """Count how often each topic is named."""
    counts: Counter[tuple[str | None, UUID]] = Counter()
    for number, row in enumerate(asked, 1):
        counts[row["name"], row["topic_id"]] += 1
        if number % STEP_ROWS == 0:
            yield
    return counts


class DeleteTopics:
    """:param enabled: ``delete.topic.enable``."""

    def __init__(
        self, topics: TopicAdmin, metadata: MetadataCache, is_controller: Callable[[], bool], *, enabled: bool
    ) -> None:
        self._topics = topics
        self._metadata = metadata
        self._is_controller = is_controller
        self._enabled = enabled

    def __call__(self, request: Request) -> None:
        answer_from(request, self._answer(request))

    async def _answer(self, request: Request) -> Row:
        body = request.body
        # Versions below 6 list names; later ones list rows with a name or an ID.
        asked = body.get("topics") or [
            {"name": name, "topic_id": ZERO_UUID} for name in dict.fromkeys(body.get("topic_names") or ())
        ]
        timeout_s = body["timeout_ms"] / 1000
        counts = await in_slices(request, _counted(asked))

        async def one(row: Row) -> Row:
            if counts[row["name"], row["topic_id"]] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic appears in the request more than once")
            return await self._delete(row, timeout_s)

        return {"responses": await gather_by_topic(request, asked, one, self._error_row)}

    async def _delete(self, row: Row, timeout_s: float) -> Row:
        if not self._is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        if not self._enabled:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        name, topic_id = row["name"], row["topic_id"]
        if name is not None and topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named either by its name or by its id, not by both")
        if name is None:
            name = self._metadata.name_of(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        topic_id = self._metadata.topic_id(name)
        deleted = await self._topics.delete(name, timeout_s)

        def unlisted() -> bool:
            known = self._metadata.topic(name)
            return known is None or known.topic_id != topic_id

        if not deleted or not await self._metadata.wait_until(unlisted, timeout_s):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the deletion was requested and is in progress")
        return {"name": name, "topic_id": topic_id, "error_code": 0, "error_message": None}

    @staticmethod
    def _error_row(row: Row, error: KafkaError) -> Row:
        return {
            "name": row["name"],
            "topic_id": row["topic_id"],
            "error_code": int(error.code),
            "error_message": error.message or None,
        }
