"""AlterPartitionReassignments (key 45): an administrator moves replicas, or cancels that (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.server.answers import answer_from
from kreplica.server.request import Request

Row = dict[str, Any]

Targets = Mapping[TopicPartition, "tuple[int, ...] | None"]

AskReassignment = Callable[[Targets], "Deferred[Mapping[TopicPartition, KafkaError | None]]"]
"""Ask the controller for these replicas (None: cancel): an error or None by partition, or a ``KafkaError``."""


class AlterPartitionReassignments:
    """Answers when the moves are written to ZooKeeper, long before they end.

    :param ask: NOT_CONTROLLER where this broker is not the controller.
    """

    def __init__(self, ask: AskReassignment) -> None:
        self._ask = ask

    def __call__(self, request: Request) -> None:
        answer_from(request, self._answer(request.body))

    async def _answer(self, body: Row) -> Row:
        targets: dict[TopicPartition, tuple[int, ...] | None] = {
            TopicPartition(topic["name"], row["partition_index"]): (
                None if row["replicas"] is None else tuple(row["replicas"])
            )
            for topic in body["topics"]
            for row in topic["partitions"]
        }
        try:
            results = await self._ask(targets)
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message or None, "responses": []}
        return {"error_code": 0, "error_message": None, "responses": _rows(results)}


def _rows(results: Mapping[TopicPartition, KafkaError | None]) -> list[Row]:
    topics: dict[str, list[Row]] = {}
    for (topic, partition), error in results.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "error_code": 0 if error is None else int(error.code),
                "error_message": None if error is None else error.message or None,
            }
        )
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]
