"""OffsetFetch (key 9): returns the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kreplica.coordination import Shards
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.group import NO_GENERATION
from kreplica.groups.records import NO_LEADER_EPOCH
from kreplica.groups.shard import GroupShard
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices

BATCHED_FROM = 8
GROUP_ERRORS_FROM = 2
"""First version with a group-level error; earlier versions repeat it in each partition."""

NO_OFFSET = -1

Row = dict[str, Any]
TopicPartitions = Iterable[tuple[str, Iterable[int]]]
PartitionRow = Callable[[str, int], Row]


class OffsetFetch:
    """Responds with committed offsets."""

    def __init__(self, shards: Shards[GroupShard]) -> None:
        self._shards = shards

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[Row]:
        body = request.body
        require_stable = body.get("require_stable", False)
        if request.version >= BATCHED_FROM:
            groups = []
            for group in body["groups"]:
                groups.append((yield from self._group(group, require_stable)))
                if len(groups) % STEP_ROWS == 0:
                    yield
            return {"throttle_time_ms": 0, "groups": groups}
        response = yield from self._group(body, require_stable)
        if response["error_code"] and request.version < GROUP_ERRORS_FROM:
            code = ErrorCode.of(response["error_code"])
            requested = ((topic["name"], topic["partition_indexes"]) for topic in body["topics"])
            response["topics"] = yield from _topics(requested, lambda _, index: _error_row(index, code))
        return {"throttle_time_ms": 0, **response}

    def _group(self, requested: Row, require_stable: bool) -> Steps[Row]:
        """Return the offsets of one group; all of them if the request names no topics."""
        group_id = requested["group_id"]
        try:
            shard = self._shards.current_shard_of(group_id)
            group = shard.group(group_id)
            if group is not None:
                group.check_fetch(requested.get("member_id"), requested.get("member_epoch", NO_GENERATION))
        except KafkaError as error:
            return {"group_id": group_id, "topics": [], "error_code": int(error.code)}
        topics = requested["topics"]
        if topics is None:
            # A copy, because other commits can happen between two slices.
            topic_partitions: TopicPartitions = [
                (topic, list(partitions)) for topic, partitions in shard.offsets.partitions_of(group_id)
            ]
        else:
            topic_partitions = ((topic["name"], topic["partition_indexes"]) for topic in topics)
        rows = yield from _topics(topic_partitions, _committed_row(shard, group_id, require_stable))
        return {"group_id": group_id, "topics": rows, "error_code": 0}


def _topics(topic_partitions: TopicPartitions, partition_row: PartitionRow) -> Steps[list[Row]]:
    topics, count = [], 0
    for topic, partitions in topic_partitions:
        rows = []
        for index in partitions:
            rows.append(partition_row(topic, index))
            count += 1
            if count % STEP_ROWS == 0:
                yield
        topics.append({"name": topic, "partitions": rows})
    return topics


def _committed_row(shard: GroupShard, group_id: str, require_stable: bool) -> PartitionRow:
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

    return partition_row


def _error_row(index: int, code: ErrorCode) -> Row:
    """Return the row of a partition without an offset; the code may be NONE."""
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": int(code),
    }
