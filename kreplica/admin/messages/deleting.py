"""Deletes the records before a position: advances the log start offsets of partitions through their leaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.published_metadata import PublishedTopic
from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.pages import StartPosition
from kreplica.admin.peers.leaders import EARLIEST, LATEST, Leaders, by_topic, problem_texts
from kreplica.client.errors import ClientError
from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.gather import gather
from kreplica.wire.messages import DELETE_RECORDS

PER_REQUEST_MAX = 1000
TIMEOUT_S = 10.0

Row = dict[str, Any]


class CleanupSettings(Protocol):
    """The topic setting that determines whether records can be deleted."""

    @property
    def cleanup_policy(self) -> frozenset[str]: ...


class RecordDeletions:
    """Requests offsets and deletions from the leaders.

    :param settings_of: returns the effective settings of a topic.
    """

    def __init__(self, leaders: Leaders, settings_of: Callable[[str], CleanupSettings]) -> None:
        self._leaders = leaders
        self._settings_of = settings_of

    async def delete(
        self, topic: PublishedTopic, partition: int | None, before: StartPosition, *, dry_run: bool
    ) -> list[Row]:
        """Delete the records before a position.

        :param partition: None for all partitions.
        :return: partition, and the log start offset before and after.
        :raise KafkaError: INVALID_TOPIC_EXCEPTION for an internal topic; POLICY_VIOLATION for a compacted one.
        :raise Problem: 404 for an unknown partition; 503 if a leader does not respond.
        """
        self._check(topic.name)
        keys = [TopicPartition(topic.name, number) for number in _numbers(topic, partition)]
        starts = await self._offsets(keys, EARLIEST)
        ends = await self._offsets(keys, LATEST)
        after = await self._after(before, keys, starts, ends)
        if not dry_run:
            await self._delete({key: after[key] for key in keys if after[key] > starts[key]})
        return [{"partition": key.partition, "before": starts[key], "after": after[key]} for key in keys]

    def _check(self, name: str) -> None:
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only coordinators can delete records of {name}")
        policies = self._settings_of(name).cleanup_policy
        if "delete" not in policies:
            policy = ",".join(sorted(policies))
            detail = f"records of {name} cannot be deleted: cleanup.policy is {policy} and does not include delete"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, detail)

    async def _after(
        self,
        before: StartPosition,
        keys: Sequence[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        if before.kind == "latest":
            return dict(ends)
        if before.kind == "timestamp":
            timed = await self._offsets(keys, before.value)
            return {key: timed[key] if timed[key] >= 0 else ends[key] for key in keys}
        return {key: max(starts[key], min(before.value, ends[key])) for key in keys}

    async def _offsets(self, keys: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        offsets = await self._leaders.offsets(dict.fromkeys(keys, timestamp))
        if offsets.problems:
            raise _failed("nothing was deleted", offsets.problems)
        return offsets.found

    async def _delete(self, offsets: Mapping[TopicPartition, int]) -> None:
        problems: dict[TopicPartition, str] = {}
        requests = []
        for leader, keys in self._leaders.by_leader(offsets, problems).items():
            for start in range(0, len(keys), PER_REQUEST_MAX):
                part = {key: offsets[key] for key in keys[start : start + PER_REQUEST_MAX]}
                requests.append(self._request(leader, part, problems))
        await gather(requests)
        if problems:
            deleted_count = len(offsets) - len(problems)
            raise _failed(f"records were deleted in only {deleted_count} of {len(offsets)} partitions", problems)

    async def _request(
        self, leader: int, offsets: Mapping[TopicPartition, int], problems: dict[TopicPartition, str]
    ) -> None:
        body = {
            "topics": [
                {
                    "name": name,
                    "partitions": [{"partition_index": key.partition, "offset": offsets[key]} for key in keys],
                }
                for name, keys in by_topic(offsets).items()
            ],
            "timeout_ms": int(TIMEOUT_S * 1000),
        }
        connections = self._leaders.connections
        try:
            response = await connections.request(leader, DELETE_RECORDS, body, timeout_s=TIMEOUT_S * 2)
        except ClientError as error:
            problems.update(dict.fromkeys(offsets, f"broker {leader} does not respond: {error}"))
            return
        for topic in response["topics"]:
            for row in topic["partitions"]:
                if row["error_code"]:
                    key = TopicPartition(topic["name"], row["partition_index"])
                    problems[key] = f"broker {leader} returned {ErrorCode.of(row['error_code']).name} for {key}"


def _numbers(topic: PublishedTopic, partition: int | None) -> Sequence[int]:
    if partition is None:
        return sorted(topic.partitions)
    if partition not in topic.partitions:
        detail = f"partition {partition} of {topic.name} does not exist (number of partitions: {len(topic.partitions)})"
        raise Problem(404, "UNKNOWN_TOPIC_OR_PARTITION", detail)
    return [partition]


def _failed(outcome: str, problems: Mapping[TopicPartition, str]) -> Problem:
    texts = problem_texts(problems)
    return Problem(
        503,
        "LEADER_NOT_AVAILABLE",
        f"{outcome}: {texts[0]}",
        what_to_do="Retry when the partitions have leaders and in-sync replicas; deleted records stay deleted.",
        members={"problems": texts},
    )
