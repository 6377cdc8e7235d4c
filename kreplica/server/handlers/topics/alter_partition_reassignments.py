"""AlterPartitionReassignments (key 45): starts or cancels reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result

Row = dict[str, Any]

Targets = Mapping[TopicPartition, "tuple[int, ...] | None"]

AskReassignment = Callable[[Targets], "Deferred[Mapping[TopicPartition, KafkaError | None]]"]
"""Function that asks the controller for target replicas (None: cancel); returns errors by partition, or a
``KafkaError``."""


class AlterPartitionReassignments:
    """Responds when the reassignments are written to ZooKeeper, before they are complete.

    :param ask: returns NOT_CONTROLLER if this broker is not the controller.
    """

    def __init__(self, ask: AskReassignment) -> None:
        self._ask = ask

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request, request.body))

    async def _response(self, request: Request, body: Row) -> Row:
        targets = await in_slices(request, _targets(body["topics"]))
        try:
            results = await self._ask(targets)
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message or None, "responses": []}
        return {"error_code": 0, "error_message": None, "responses": await in_slices(request, _rows(results))}


def _targets(topics: list[Row]) -> Steps[dict[TopicPartition, tuple[int, ...] | None]]:
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for topic in topics:
        for row in topic["partitions"]:
            replicas = row["replicas"]
            key = TopicPartition(topic["name"], row["partition_index"])
            targets[key] = None if replicas is None else tuple(replicas)
            if len(targets) % STEP_ROWS == 0:
                yield
    return targets


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
