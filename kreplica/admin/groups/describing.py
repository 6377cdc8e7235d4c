"""Describes one group: its state, members and committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.admin.groups.coordinators import GroupCoordinators
from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.runtime.gather import gather
from kreplica.wire.messages import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, OFFSET_FETCH
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, parse_versioned
from kreplica.wire.schema import Schema

CLASSIC, CONSUMER = "classic", "consumer"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a group.

    :param protocol: the assignment protocol of a classic group, or the assignor.
    :param epoch: None for a classic group.
    """

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int | None
    protocol: str
    epoch: int | None
    members: Sequence[Row]


class GroupDescriptions:
    """Requests descriptions from coordinators."""

    def __init__(self, coordinators: GroupCoordinators) -> None:
        self._coordinators = coordinators

    async def of(self, group: str) -> Description:
        """Return the description of a group.

        :raise KafkaError: GROUP_ID_NOT_FOUND, or the coordinator's error.
        """
        described, classic = await gather([self._consumer_row(group), self._classic_row(group)])
        row = described if not described["error_code"] else classic
        code = ErrorCode.of(row["error_code"])
        if code is not ErrorCode.NONE:
            problem = "does not exist" if code is ErrorCode.GROUP_ID_NOT_FOUND else "cannot be described"
            raise KafkaError(code, f"group {group!r} {problem}")
        coordinator = self._coordinators.lookup.coordinator_of(group)
        if row is described:
            members = [_consumer_member(member) for member in row["members"]]
            state, assignor, epoch = row["group_state"], row["assignor_name"], row["group_epoch"]
            return Description(group, CONSUMER, CONSUMER, state, coordinator, assignor, epoch, members)
        kind = row["protocol_type"]
        members = [_classic_member(member, kind) for member in row["members"]]
        return Description(group, CLASSIC, kind, row["group_state"], coordinator, row["protocol_data"], None, members)

    async def _consumer_row(self, group: str) -> Row:
        body = {"group_ids": [group], "include_authorized_operations": False}
        response = await self._coordinators.request(group, CONSUMER_GROUP_DESCRIBE, body, _code_of_first)
        row: Row = response["groups"][0]
        return row

    async def _classic_row(self, group: str) -> Row:
        body = {"groups": [group], "include_authorized_operations": False}
        response = await self._coordinators.request(group, DESCRIBE_GROUPS, body, _code_of_first)
        row: Row = response["groups"][0]
        return row

    async def offsets(self, group: str) -> list[Row]:
        """Return the committed offsets by topic and partition.

        :raise KafkaError: the coordinator's error.
        """
        body = {
            "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}],
            "require_stable": False,
        }
        response = await self._coordinators.request(group, OFFSET_FETCH, body, _code_of_first)
        group_row = response["groups"][0]
        if group_row["error_code"]:
            raise KafkaError(ErrorCode.of(group_row["error_code"]), f"cannot read the offsets of {group!r}")
        rows = [
            {
                "topic": topic["name"],
                "partition": row["partition_index"],
                "offset": row["committed_offset"],
                "leader_epoch": row["committed_leader_epoch"] if row["committed_leader_epoch"] >= 0 else None,
                "metadata": row["metadata"] or "",
            }
            for topic in group_row["topics"]
            for row in topic["partitions"]
            if not row["error_code"] and row["committed_offset"] >= 0
        ]
        return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _code_of_first(response: Row) -> int:
    code: int = response["groups"][0]["error_code"]
    return code


# --- members ---------------------------------------------------------------------------------------------------------


def _consumer_member(member: Row) -> Row:
    return {
        "member_id": member["member_id"],
        "instance_id": member["instance_id"],
        "client_id": member["client_id"],
        "client_host": member["client_host"],
        "rack": member["rack_id"],
        "topics": sorted(member["subscribed_topic_names"]),
        "topic_expression": member["subscribed_topic_regex"],
        "assignment": _assignment(
            (row["topic_name"], row["partitions"]) for row in member["assignment"]["topic_partitions"]
        ),
    }


def _classic_member(member: Row, protocol_type: str) -> Row:
    is_consumer = protocol_type == CONSUMER
    assigned = _parse(ASSIGNMENT, member["member_assignment"]) if is_consumer else {}
    subscribed = _parse(SUBSCRIPTION, member["member_metadata"]) if is_consumer else {}
    return {
        "member_id": member["member_id"],
        "instance_id": member["group_instance_id"],
        "client_id": member["client_id"],
        "client_host": member["client_host"],
        "rack": subscribed.get("rack_id"),
        "topics": sorted(subscribed.get("topics", ())),
        "topic_expression": None,
        "assignment": _assignment((row["topic"], row["partitions"]) for row in assigned.get("assigned_partitions", ())),
    }


def _assignment(rows: Iterable[tuple[str, Iterable[int]]]) -> list[Row]:
    return [{"topic": topic, "partitions": sorted(partitions)} for topic, partitions in sorted(rows)]


def _parse(schema: Schema, data: bytes) -> Row:
    """Parse a member's metadata or assignment; return an empty dict if it is empty or cannot be parsed."""
    if not data:
        return {}
    try:
        return parse_versioned(schema, data)[1]
    except ProtocolError:
        return {}
