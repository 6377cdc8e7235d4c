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

TOPICS_AT_ONCE = 20
"""Number of topics of one request that wait for ZooKeeper or for the metadata at the same time: responses from
ZooKeeper come together, and each update of the metadata checks all topics that wait for it."""


def _asked(body: Row) -> Steps[tuple[list[Row], Counter[tuple[str | None, UUID]]]]:
    """Return the requested topics, and how often each is named."""
    # Versions below 6 list names; later ones list rows with a name or an ID.
    asked: list[Row] = list(body.get("topics") or ())
    for number, name in enumerate(dict.fromkeys(body.get("topic_names") or ()), 1):
        asked.append({"name": name, "topic_id": ZERO_UUID})
        if number % STEP_ROWS == 0:
            yield
    counts: Counter[tuple[str | None, UUID]] = Counter()
    for number, row in enumerate(asked, 1):
        counts[row["name"], row["topic_id"]] += 1
        if number % STEP_ROWS == 0:
            yield
    return asked, counts


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
        seconds = request.connection.seconds
        ends_s = seconds() + request.body["timeout_ms"] / 1000
        asked, counts = await in_slices(request, _asked(request.body))

        async def ask(row: Row) -> Row:
            if counts[row["name"], row["topic_id"]] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic appears in the request more than once")
            return await self._request(row)

        async def wait(row: Row) -> Row:
            if not row["error_code"]:
                await self._wait(row["name"], row["topic_id"], ends_s, seconds)
            return row

        # All deletions are requested before the first is waited for: the wait may last until the client gives up.
        requested = await gather_by_topic(request, asked, ask, self._error_row, TOPICS_AT_ONCE)
        return {"responses": await gather_by_topic(request, requested, wait, self._error_row, TOPICS_AT_ONCE)}

    async def _request(self, row: Row) -> Row:
        """Request the deletion of one topic; return its response row."""
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
        await self._topics.request_deletion(name)
        return {"name": name, "topic_id": topic_id, "error_code": 0, "error_message": None}

    async def _wait(self, name: str, topic_id: UUID, ends_s: float, seconds: Callable[[], float]) -> None:
        """Wait until a topic is removed from ZooKeeper and from this broker's metadata."""

        def unlisted() -> bool:
            known = self._metadata.topic(name)
            return known is None or known.topic_id != topic_id

        deleted = await self._topics.until_deleted(name, max(ends_s - seconds(), 0.0))
        if not deleted or not await self._metadata.wait_until(unlisted, ends_s - seconds()):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the deletion was requested and is in progress")

    @staticmethod
    def _error_row(row: Row, error: KafkaError) -> Row:
        return {
            "name": row["name"],
            "topic_id": row["topic_id"],
            "error_code": int(error.code),
            "error_message": error.message or None,
        }
