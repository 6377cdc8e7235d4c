"""Resets the offsets of a group that has no members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.admin.cluster_state.published_metadata import topic_of
from kreplica.admin.groups.coordinators import GroupCoordinators
from kreplica.admin.groups.describing import Description, GroupDescriptions
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.leaders import EARLIEST, LATEST, Leaders, by_topic, problem_texts
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.runtime import Runtime
from kreplica.wire.messages import OFFSET_COMMIT, OFFSET_DELETE

NO_GENERATION = -1
NO_MEMBER = ""

Row = dict[str, Any]
RequestedPartitions = Mapping[str, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reset: ``earliest``, ``latest``, ``offset``, ``shift`` (number of records), ``timestamp``
    (milliseconds since 1970) or ``duration`` (milliseconds before now). Offsets outside a log are moved to its start
    or end."""

    kind: str
    value: int = 0


class OffsetResets:
    """Requests log offsets from the leaders, and commits offsets through the group's coordinator."""

    def __init__(
        self, runtime: Runtime, leaders: Leaders, coordinators: GroupCoordinators, descriptions: GroupDescriptions
    ) -> None:
        self._runtime = runtime
        self._leaders = leaders
        self._coordinators = coordinators
        self._descriptions = descriptions

    # --- reset -------------------------------------------------------------------------------------------------------

    async def reset(
        self,
        group: str,
        target: Target,
        requested: RequestedPartitions | None,
        check: Callable[[Iterable[str]], None] = lambda topics: None,
        *,
        dry_run: bool,
    ) -> list[Row]:
        """Compute the new offsets of a group and commit them.

        :param check: raises a problem if the caller may not read one of the topics.
        :param requested: partitions by topic, None for all partitions of a topic; None for all partitions of all
            topics in which the group has a committed offset, or, for a shift, the partitions with one.
        :return: topic, partition, and the offset before (None if absent) and after.
        :raise KafkaError: GROUP_ID_NOT_FOUND if the group does not exist and no topics are named.
        :raise Problem: 409 while the group has members or if there is no offset to shift; 503 if a leader does not
            respond, in which case nothing is committed.
        """
        description = await self._describe(group)
        if description is None and requested is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} does not exist")
        if description is not None:
            check_no_members(description)
        committed = await self._committed_offsets(group) if description is not None else {}
        keys = self._default_keys(target, committed) if requested is None else self._keys(requested)
        check(dict.fromkeys(key.topic for key in keys))
        after = await self._after(target, keys, committed)
        if not dry_run and keys:
            await self._coordinators.ensure_coordinator(group)
            await self._commit(group, after)
        return [
            {"topic": key.topic, "partition": key.partition, "before": committed.get(key), "after": after[key]}
            for key in keys
        ]

    async def _describe(self, group: str) -> Description | None:
        try:
            return await self._descriptions.of(group)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    async def _committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        rows = await self._descriptions.offsets(group)
        return {TopicPartition(row["topic"], row["partition"]): row["offset"] for row in rows}

    def _default_keys(self, target: Target, committed: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions to reset if no topics are requested, sorted: those that still exist."""
        topics = self._leaders.published.topics
        names = {key.topic for key in committed if key.topic in topics}
        keys = [TopicPartition(name, number) for name in names for number in topics[name].partitions]
        return sorted(key for key in keys if key in committed or target.kind != "shift")

    def _keys(self, requested: RequestedPartitions) -> list[TopicPartition]:
        """Return the requested partitions, sorted.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        keys: dict[TopicPartition, None] = {}
        for name, numbers in requested.items():
            partitions = topic_of(self._leaders.published, name).partitions
            for number in sorted(partitions) if numbers is None else numbers:
                if number not in partitions:
                    detail = f"partition {number} of {name} does not exist (number of partitions: {len(partitions)})"
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
                keys[TopicPartition(name, number)] = None
        return sorted(keys)

    async def _after(
        self, target: Target, keys: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        starts = await self._offsets(keys, EARLIEST)
        ends = await self._offsets(keys, LATEST)
        if target.kind in ("timestamp", "duration"):
            now_ms = self._runtime.wall_clock_ms()
            time_ms = target.value if target.kind == "timestamp" else max(0, now_ms - target.value)
            timed = await self._offsets(keys, time_ms)
            target_offsets = {key: timed[key] if timed[key] >= 0 else ends[key] for key in keys}
        elif target.kind == "shift":
            _require_committed(keys, committed)
            target_offsets = {key: committed[key] + target.value for key in keys}
        elif target.kind == "offset":
            target_offsets = dict.fromkeys(keys, target.value)
        else:
            target_offsets = starts if target.kind == "earliest" else ends
        return {key: max(starts[key], min(target_offsets[key], ends[key])) for key in keys}

    async def _offsets(self, keys: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return log offsets by partition, from the leaders.

        :raise Problem: 503 if the offset of a partition is unknown.
        """
        offsets = await self._leaders.offsets(dict.fromkeys(keys, timestamp))
        if offsets.problems:
            texts = problem_texts(offsets.problems)
            raise Problem(
                503,
                "LEADER_NOT_AVAILABLE",
                f"nothing was committed: {texts[0]}",
                what_to_do="Retry when the partitions have leaders: GET /v1/partitions?state=offline",
                members={"problems": texts},
            )
        return offsets.found

    async def _commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": NO_GENERATION,
            "member_id": NO_MEMBER,
            "group_instance_id": None,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": key.partition,
                            "committed_offset": offsets[key],
                            "committed_leader_epoch": NO_EPOCH,
                            "committed_metadata": "",
                        }
                        for key in keys
                    ],
                }
                for name, keys in by_topic(offsets).items()
            ],
        }
        response = await self._coordinators.request(group, OFFSET_COMMIT, body, _code_of_topics)
        code = ErrorCode.of(_code_of_topics(response))
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH):
            raise _has_members(group, "a member has joined in the meantime")
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"the coordinator of {group!r} rejected the request")

    # --- delete ------------------------------------------------------------------------------------------------------

    async def delete(self, group: str, topic: str, *, dry_run: bool) -> list[Row]:
        """Delete the committed offsets of a topic.

        :return: topic, partition, and the offset before.
        :raise KafkaError: GROUP_ID_NOT_FOUND; GROUP_SUBSCRIBED_TO_TOPIC if members read it.
        """
        description = await self._descriptions.of(group)
        if any(topic in member["topics"] for member in description.members):
            raise KafkaError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, f"members of {group!r} read {topic!r}")
        offsets = await self._committed_offsets(group)
        committed = {key: offset for key, offset in offsets.items() if key.topic == topic}
        if committed and not dry_run:
            rows = [{"partition_index": key.partition} for key in committed]
            body = {"group_id": group, "topics": [{"name": topic, "partitions": rows}]}
            response = await self._coordinators.request(group, OFFSET_DELETE, body, _code_of_deletion)
            code = ErrorCode.of(_code_of_deletion(response))
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"the coordinator of {group!r} rejected the request")
        return [{"topic": key.topic, "partition": key.partition, "before": committed[key]} for key in committed]


def check_no_members(description: Description) -> None:
    """Check that a group has no members.

    :raise Problem: 409 if it has members.
    """
    if description.members:
        clients = sorted({member["client_id"] or member["member_id"] for member in description.members})
        names = ", ".join(clients[:5]) + (", ..." if len(clients) > 5 else "")
        count = len(description.members)
        raise _has_members(description.group, f"it has {count} member{'s' if count > 1 else ''}: {names}")


def _has_members(group: str, why: str) -> Problem:
    return Problem(
        409,
        "NON_EMPTY_GROUP",
        f"the group {group!r} is in use: {why}",
        what_to_do="Stop its members and try again; killed members are removed after their session timeout.",
    )


def _require_committed(keys: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
    missing = [key for key in keys if key not in committed]
    if missing:
        raise Problem(
            409,
            "NO_COMMITTED_OFFSET",
            f"no offset to shift: the group has no committed offset for {', '.join(map(str, missing[:5]))}",
            what_to_do="Specify only partitions with committed offsets, or reset them to earliest or latest.",
        )


def _code_of_topics(response: Row) -> int:
    codes = [row["error_code"] for topic in response["topics"] for row in topic["partitions"] if row["error_code"]]
    return codes[0] if codes else 0


def _code_of_deletion(response: Row) -> int:
    return response["error_code"] or _code_of_topics(response)
