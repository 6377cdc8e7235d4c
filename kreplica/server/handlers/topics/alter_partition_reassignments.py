"""AlterPartitionReassignments (key 45): starts or cancels reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result

Row = dict[str, Any]

Replicas = tuple[int, ...] | None
Results = dict[TopicPartition, KafkaError | None]

RequestReassignment = Callable[[Mapping[TopicPartition, Replicas]], "Deferred[Results]"]
"""Asks the controller to reassign partitions to target replicas; None cancels a reassignment.

Fires with the errors by partition, or fails with a ``KafkaError``.
"""


class AlterPartitionReassignments:
    """Responds when the reassignments are written to ZooKeeper, before they are complete.

    :param request_reassignment: fails with NOT_CONTROLLER if this broker is not the controller.
    """

    def __init__(self, request_reassignment: RequestReassignment, metadata: MetadataCache) -> None:
        self._request_reassignment = request_reassignment
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request, request.body))

    async def _response(self, request: Request, body: Row) -> Row:
        targets, unknown = await in_slices(request, _targets(body["topics"], self._metadata))
        try:
            results = await self._request_reassignment(targets)
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message or None, "responses": []}
        return {"error_code": 0, "error_message": None, "responses": await in_slices(request, _rows(unknown | results))}


def _targets(topics: list[Row], metadata: MetadataCache) -> Steps[tuple[dict[TopicPartition, Replicas], Results]]:
    """Return the targets of existing partitions, and errors for nonexistent ones."""
    targets: dict[TopicPartition, Replicas] = {}
    unknown: Results = {}
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
    rows = ((topic["name"], row) for topic in topics for row in topic["partitions"])
    for number, (name, row) in enumerate(rows, 1):
        replicas = row["replicas"]
        key = TopicPartition(name, row["partition_index"])
        if metadata.has_partition(*key):
            targets[key] = None if replicas is None else tuple(replicas)
        else:
            unknown[key] = error
        if number % STEP_ROWS == 0:
            yield
    return targets, unknown


def _rows(results: Mapping[TopicPartition, KafkaError | None]) -> Steps[list[Row]]:
    topics: dict[str, list[Row]] = {}
    for number, ((topic, partition), error) in enumerate(results.items(), 1):
        if number % STEP_ROWS == 0:
            yield
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "error_code": 0 if error is None else int(error.code),
                "error_message": None if error is None else error.message or None,
            }
        )
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]
