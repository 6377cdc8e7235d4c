"""ListPartitionReassignments (key 46): lists the reassignments in progress (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result

Row = dict[str, Any]


class Move(Protocol):
    """Reassignment of a partition: all its replicas, the added ones and the removed ones."""

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def adding(self) -> tuple[int, ...]: ...

    @property
    def removing(self) -> tuple[int, ...]: ...


RequestMoves = Callable[["list[TopicPartition] | None"], "Deferred[Mapping[TopicPartition, Move]]"]
"""Asks the controller for the ongoing reassignments of these partitions; None means all partitions.

May fail with a ``KafkaError``.
"""


class ListPartitionReassignments:
    """Handles ListPartitionReassignments.

    :param request_moves: fails with NOT_CONTROLLER if this broker is not the controller.
    """

    def __init__(self, request_moves: RequestMoves, metadata: MetadataCache) -> None:
        self._request_moves = request_moves
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request, request.body["topics"]))

    async def _response(self, request: Request, topics: list[Row] | None) -> Row:
        partitions = None if topics is None else await in_slices(request, _existing(topics, self._metadata))
        try:
            moves = await self._request_moves(partitions)
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message or None, "topics": []}
        return {"error_code": 0, "error_message": None, "topics": _rows(moves)}


def _existing(topics: list[Row], metadata: MetadataCache) -> Steps[list[TopicPartition]]:
    """Return the requested partitions that exist, each once."""
    existing: dict[TopicPartition, None] = {}
    for number, key in enumerate(((row["name"], each) for row in topics for each in row["partition_indexes"]), 1):
        if metadata.has_partition(*key):
            existing[TopicPartition(*key)] = None
        if number % STEP_ROWS == 0:
            yield
    return list(existing)


def _rows(moves: Mapping[TopicPartition, Move]) -> list[Row]:
    topics: dict[str, list[Row]] = {}
    for (topic, partition), move in moves.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "replicas": list(move.replicas),
                "adding_replicas": list(move.adding),
                "removing_replicas": [replica for replica in move.removing if replica in move.replicas],
            }
        )
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]
