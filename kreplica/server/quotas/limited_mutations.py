"""Limits how fast clients create and delete partitions (KIP-599)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kreplica.cluster.quotas import CONTROLLER_MUTATION_RATE
from kreplica.errors import ErrorCode
from kreplica.model import ZERO_UUID
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.handler_table import HandlerTable
from kreplica.server.protocol.request import Handler, Request
from kreplica.server.quotas.throttling import Throttling
from kreplica.wire.messages import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS

Row = dict[str, Any]

REJECTED = "The throttling quota has been exceeded."


class _Mutation(NamedTuple):
    """An API that creates or deletes partitions.

    :ivar strict_from: first version whose rows are rejected if the quota is exceeded; older clients are only throttled.
    :ivar fields: the request fields with rows.
    :ivar response_field: the response field with rows.
    """

    strict_from: int
    fields: tuple[str, ...]
    response_field: str


_MUTATIONS = {
    CREATE_TOPICS.key: _Mutation(6, ("topics",), "topics"),
    CREATE_PARTITIONS.key: _Mutation(3, ("topics",), "results"),
    DELETE_TOPICS.key: _Mutation(5, ("topic_names", "topics"), "responses"),
}


def limited_mutations(
    throttling: Throttling, metadata: MetadataCache, default_partitions: int, table: HandlerTable
) -> HandlerTable:
    """Return a copy of the table with CreateTopics, CreatePartitions and DeleteTopics limited.

    :param default_partitions: ``num.partitions``.
    """
    return _LimitedMutations(throttling, metadata, default_partitions).table(table)


class _LimitedMutations:

    def __init__(
        self,
        throttling: Throttling,
        metadata: MetadataCache,
        default_partitions: int,
    ) -> None:
        self._quotas = throttling.quotas
        self._throttling = throttling
        self._metadata = metadata
        self._default_partitions = default_partitions

    def table(self, table: HandlerTable) -> HandlerTable:
        limited = {
            key: replace(table[key], handle=self._limit_handler(key, mutation, table[key].handle))
            for key, mutation in _MUTATIONS.items()
            if key in table
        }
        return {**table, **limited}

    def _limit_handler(self, key: int, mutation: _Mutation, handle: Handler) -> Handler:
        def limited(request: Request) -> None:
            if CONTROLLER_MUTATION_RATE in self._quotas.names and not request.body.get("validate_only", False):
                self._limit(request, key, mutation)
            handle(request)

        return limited

    def _limit(self, request: Request, key: int, mutation: _Mutation) -> None:
        """Count the partitions of a request; remove rows that exceed the quota, and amend the response."""
        quotas, body = self._quotas, request.body
        usage = quotas.find(CONTROLLER_MUTATION_RATE, request.connection.user, request.client_id)
        if usage is None:
            return
        now_s = quotas.seconds()
        is_strict = request.version >= mutation.strict_from
        rejections: list[Row] = []
        throttle_s = 0.0
        for field in mutation.fields:
            accepted = []
            for row in body.get(field) or ():
                wait_s = usage.record(0.0, now_s)
                if is_strict and wait_s > 0.0:
                    rejections.append(_rejection(row, field))
                    throttle_s = wait_s
                else:
                    partitions = self._partitions(key, row)
                    throttle_s = usage.record(partitions, now_s)
                    quotas.metrics[CONTROLLER_MUTATION_RATE].used += partitions
                    accepted.append(row)
            if field in body:
                body[field] = accepted
        if is_strict and not rejections:
            return  # only a request that arrives before the quota has recovered is throttled
        if throttle_s <= 0.0:
            return
        name = mutation.response_field
        request.amend_response(lambda response: {**response, name: [*response.get(name, ()), *rejections]})
        self._throttling.throttle(request, CONTROLLER_MUTATION_RATE, throttle_s)

    def _partitions(self, key: int, row: Row | str) -> int:
        """Return the number of partitions that a row creates or deletes."""
        if isinstance(row, str):
            return self._existing(row)
        if key == CREATE_TOPICS.key:
            if row["assignments"]:
                return len(row["assignments"])
            count = int(row["num_partitions"])
            return count if count > 0 else self._default_partitions
        name = row["name"]
        if name is None:
            name = self._metadata.name_of(row["topic_id"])
        existing = 0 if name is None else self._existing(name)
        return max(int(row["count"]) - existing, 0) if key == CREATE_PARTITIONS.key else existing

    def _existing(self, name: str) -> int:
        topic = self._metadata.topic(name)
        return 0 if topic is None else len(topic.partitions)


def _rejection(row: Row | str, field: str) -> Row:
    name = row if isinstance(row, str) else row["name"]
    return {
        "name": name,
        "topic_id": row["topic_id"] if not isinstance(row, str) and "topic_id" in row else ZERO_UUID,
        "error_code": int(ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        "error_message": REJECTED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }
