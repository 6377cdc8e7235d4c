"""OffsetDelete (key 47): deletes offsets of topics that a group is not subscribed to (KIP-496)."""

from __future__ import annotations

from typing import Any

from kreplica.coordination import ClusterView, Shards
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.group import Group
from kreplica.groups.shard import GroupShard
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices

Row = dict[str, Any]
Partitions = dict[tuple[str, int], None]


class OffsetDelete:
    """Responds when the deletion is committed to the log; deleting an absent offset succeeds."""

    def __init__(self, shards: Shards[GroupShard], view: ClusterView) -> None:
        self._shards = shards
        self._view = view

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[Row | None]:
        body = request.body
        group_id = body["group_id"]
        to_delete: Partitions = {}
        topics: list[Row] = []
        try:
            _, group = self._group(group_id)
            for topic in body["topics"]:
                topics.append((yield from self._topic(group, topic, to_delete)))
            # The group may have changed between two slices.
            shard, group = self._group(group_id)
            _reject_subscribed(group, topics, to_delete)
        except KafkaError as error:
            return {"error_code": int(error.code), "throttle_time_ms": 0, "topics": []}

        def respond(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                shard.remove_if_unused(group_id)
                request.respond({"error_code": 0, "throttle_time_ms": 0, "topics": topics})
            else:
                request.respond({"error_code": int(code), "throttle_time_ms": 0, "topics": []})

        records = shard.offsets.tombstones(group_id, lambda topic, index: (topic, index) in to_delete)
        if records:
            shard.offsets.remove(records, respond)
        else:
            respond(ErrorCode.NONE)
        return None

    def _group(self, group_id: str) -> tuple[GroupShard, Group]:
        """Return a group whose offsets may be deleted, and its shard.

        :raise KafkaError: the group does not exist, or another broker coordinates it.
        """
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.shard_of(group_id)
        group = shard.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        group.check_offset_delete()
        return shard, group

    def _topic(self, group: Group, requested: Row, to_delete: Partitions) -> Steps[Row]:
        name = requested["name"]
        if self._view.partition_count(name) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif group.is_subscribed_to(name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            code = ErrorCode.NONE
        rows = []
        yield
        for number, row in enumerate(requested["partitions"], 1):
            index = row["partition_index"]
            if code is ErrorCode.NONE:
                to_delete[name, index] = None
            rows.append({"partition_index": index, "error_code": int(code)})
            if number % STEP_ROWS == 0:
                yield
        return {"name": name, "partitions": rows}


def _reject_subscribed(group: Group, topics: list[Row], to_delete: Partitions) -> None:
    """Reject the deletion of offsets of topics that the group subscribed to in the meantime."""
    for topic in topics:
        for row in topic["partitions"] if group.is_subscribed_to(topic["name"]) else ():
            if row["error_code"] == int(ErrorCode.NONE):
                row["error_code"] = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                to_delete.pop((topic["name"], row["partition_index"]), None)
