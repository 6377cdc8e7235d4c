"""OffsetDelete (key 47): forget offsets of topics that a group does not read any more (KIP-496)."""

from __future__ import annotations

from typing import Any

from kreplica.coordination import ClusterView, Shards
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.group import Group
from kreplica.groups.shard import GroupShard
from kreplica.server.request import Request

Row = dict[str, Any]
Partitions = dict[tuple[str, int], None]


class OffsetDelete:
    """Answers once the deletion is committed in the log; an offset that there is not is deleted, too."""

    def __init__(self, shards: Shards[GroupShard], view: ClusterView) -> None:
        self._shards = shards
        self._view = view

    def __call__(self, request: Request) -> None:
        body = request.body
        group_id = body["group_id"]
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = self._shards.shard_of(group_id)
            group = shard.group(group_id)
            if group is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
            group.check_offset_delete()
        except KafkaError as error:
            request.answer({"error_code": int(error.code), "throttle_time_ms": 0, "topics": []})
            return
        wanted: Partitions = {}
        topics = [self._topic(group, topic, wanted) for topic in body["topics"]]

        def answer(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                shard.remove_if_unused(group_id)
                request.answer({"error_code": 0, "throttle_time_ms": 0, "topics": topics})
            else:
                request.answer({"error_code": int(code), "throttle_time_ms": 0, "topics": []})

        records = shard.offsets.tombstones(group_id, lambda topic, index: (topic, index) in wanted)
        if records:
            shard.offsets.remove(records, answer)
        else:
            answer(ErrorCode.NONE)

    def _topic(self, group: Group, asked: Row, wanted: Partitions) -> Row:
        name = asked["name"]
        if self._view.partition_count(name) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif group.is_subscribed_to(name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            code = ErrorCode.NONE
            wanted.update(dict.fromkeys((name, row["partition_index"]) for row in asked["partitions"]))
        rows = [{"partition_index": row["partition_index"], "error_code": int(code)} for row in asked["partitions"]]
        return {"name": name, "partitions": rows}
