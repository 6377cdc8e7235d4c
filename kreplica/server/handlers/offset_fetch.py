"""OffsetFetch (key 9): how far groups have read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kreplica.coordination import Shards
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.group import NO_GENERATION
from kreplica.groups.records import NO_LEADER_EPOCH
from kreplica.groups.shard import GroupShard
from kreplica.server.request import Request

BATCHED_FROM = 8
GROUP_ERRORS_FROM = 2
"""Before, what is wrong with the group is said of each partition."""

NO_OFFSET = -1

Row = dict[str, Any]
Wanted = Iterable[tuple[str, Iterable[int]]]


class OffsetFetch:
    """Answers at once, from what is committed in the log."""

    def __init__(self, shards: Shards[GroupShard]) -> None:
        self._shards = shards

    def __call__(self, request: Request) -> None:
        body = request.body
        require_stable = body.get("require_stable", False)
        if request.version >= BATCHED_FROM:
            groups = [self._group(group, require_stable) for group in body["groups"]]
            request.answer({"throttle_time_ms": 0, "groups": groups})
            return
        answer = self._group(body, require_stable)
        if answer["error_code"] and request.version < GROUP_ERRORS_FROM:
            code = ErrorCode.of(answer["error_code"])
            answer["topics"] = [
                {"name": topic["name"], "partitions": [_error_row(index, code) for index in topic["partition_indexes"]]}
                for topic in body["topics"]
            ]
        request.answer({"throttle_time_ms": 0, **answer})

    def _group(self, asked: Row, require_stable: bool) -> Row:
        """One group's offsets; all it has, where the request names no topics."""
        group_id = asked["group_id"]
        try:
            shard = self._shards.current_shard_of(group_id)
            group = shard.group(group_id)
            if group is not None:
                group.check_fetch(asked.get("member_id"), asked.get("member_epoch", NO_GENERATION))
        except KafkaError as error:
            return {"group_id": group_id, "topics": [], "error_code": int(error.code)}
        topics = asked["topics"]
        if topics is None:
            wanted: Wanted = shard.offsets.partitions_of(group_id)
        else:
            wanted = ((topic["name"], topic["partition_indexes"]) for topic in topics)
        return {"group_id": group_id, "topics": _topics(shard, group_id, wanted, require_stable), "error_code": 0}


def _topics(shard: GroupShard, group_id: str, wanted: Wanted, require_stable: bool) -> list[Row]:
    offsets = shard.offsets

    def partition_row(topic: str, index: int) -> Row:
        if require_stable and offsets.is_unstable(group_id, topic, index):
            return _error_row(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = offsets.committed(group_id, topic, index)
        if committed is None:
            return _error_row(index, ErrorCode.NONE)
        return {
            "partition_index": index,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "error_code": 0,
        }

    return [
        {"name": topic, "partitions": [partition_row(topic, index) for index in partitions]}
        for topic, partitions in wanted
    ]


def _error_row(index: int, code: ErrorCode) -> Row:
    """A partition without an offset, which need not be an error."""
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": int(code),
    }
