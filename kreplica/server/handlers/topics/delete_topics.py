"""DeleteTopics (key 20): the controller responds when the topic is removed from ZooKeeper."""

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
from kreplica.server.protocol.responses import in_slices, respond_with_result

Row = dict[str, Any]

TOPICS_AT_ONCE = 20
"""Maximum number of topics of one request that wait for ZooKeeper or for the metadata at the same time: ZooKeeper's
responses arrive together, and each metadata update checks every waiting topic."""


def _requested_topics(body: Row) -> Steps[tuple[list[Row], Counter[tuple[str | None, UUID]]]]:
    """Return the requested topics, and how often each one occurs."""
    # Versions below 6 list names; later ones list rows with a name or an ID.
    requested: list[Row] = list(body.get("topics") or ())
    for number, name in enumerate(dict.fromkeys(body.get("topic_names") or ()), 1):
        requested.append({"name": name, "topic_id": ZERO_UUID})
        if number % STEP_ROWS == 0:
            yield
    counts: Counter[tuple[str | None, UUID]] = Counter()
    for number, row in enumerate(requested, 1):
        counts[row["name"], row["topic_id"]] += 1
        if number % STEP_ROWS == 0:
            yield
    return requested, counts


class DeleteTopics:
    """Handles DeleteTopics.

    :param enabled: ``delete.topic.enable``.
    """

    def __init__(
        self, topics: TopicAdmin, metadata: MetadataCache, is_controller: Callable[[], bool], *, enabled: bool
    ) -> None:
        self._topics = topics
        self._metadata = metadata
        self._is_controller = is_controller
        self._enabled = enabled

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> Row:
        seconds = request.connection.seconds
        deadline_s = seconds() + request.body["timeout_ms"] / 1000
        requested, counts = await in_slices(request, _requested_topics(request.body))

        async def start(row: Row) -> Row:
            if counts[row["name"], row["topic_id"]] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic appears in the request more than once")
            return await self._start_deletion(row)

        async def wait(row: Row) -> Row:
            if not row["error_code"]:
                await self._wait(row["name"], row["topic_id"], deadline_s, seconds)
            return row

        # Start all deletions before waiting for the first: the wait may last until the client gives up.
        started = await gather_by_topic(request, requested, start, self._error_row, TOPICS_AT_ONCE)
        return {"responses": await gather_by_topic(request, started, wait, self._error_row, TOPICS_AT_ONCE)}

    async def _start_deletion(self, row: Row) -> Row:
        """Request the deletion of one topic, and return its response row."""
        if not self._is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        if not self._enabled:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        name, topic_id = row["name"], row["topic_id"]
        if name is not None and topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a row must have the name or the ID of a topic, not both")
        if name is None:
            name = self._metadata.name_of(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the ID {topic_id}")
        topic_id = self._metadata.topic_id(name)
        await self._topics.request_deletion(name)
        return {"name": name, "topic_id": topic_id, "error_code": 0, "error_message": None}

    async def _wait(self, name: str, topic_id: UUID, deadline_s: float, seconds: Callable[[], float]) -> None:
        """Wait until a topic is removed from ZooKeeper and from this broker's metadata."""

        def is_removed() -> bool:
            topic = self._metadata.topic(name)
            return topic is None or topic.topic_id != topic_id

        deleted = await self._topics.until_deleted(name, max(deadline_s - seconds(), 0.0))
        if not deleted or not await self._metadata.wait_until(is_removed, deadline_s - seconds()):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the deletion was requested and is in progress")

    @staticmethod
    def _error_row(row: Row, error: KafkaError) -> Row:
        return {
            "name": row["name"],
            "topic_id": row["topic_id"],
            "error_code": int(error.code),
            "error_message": error.message or None,
        }
