"""Lists, describes and deletes groups, and removes members."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from kreplica.client_core.admin.operations import NO_OPERATIONS, AclOperation, parse_operations
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import RequestRouter, Results, outcome, require_version, supports
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.errors import ErrorCode, ProtocolError
from kreplica.model import TopicPartition
from kreplica.wire.messages import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    LIST_GROUPS,
)
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, parse_versioned
from kreplica.wire.schema import Schema

STATES_FROM, TYPES_FROM = 4, 5
"""First versions of ListGroups that filter by state (KIP-518) and by type (KIP-848)."""

SEVERAL_MEMBERS_FROM = 3
CONSUMERS = "consumer"
"""Protocol type of consumer groups."""


class GroupType(StrEnum):
    """Type of a group, given by its protocol."""

    UNKNOWN = "unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        return next((each for each in cls if each.value == str(value).lower()), cls.UNKNOWN)


class GroupState(StrEnum):
    """State of a group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        return next((each for each in cls if each.value.lower() == str(value).lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in the result of ``list_groups``."""

    group_id: str
    protocol_type: str
    state: GroupState = GroupState.UNKNOWN
    type: GroupType = GroupType.UNKNOWN


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    :param topics: subscribed topics; empty if unknown.
    :param assignment: current partitions.
    :param epoch: member epoch of the consumer protocol; -1 in the classic protocol.
    :param target: target assignment of the consumer protocol.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] = ()
    assignment: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None
    epoch: int = -1
    target: frozenset[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members.

    :param assignor: the protocol that the members agreed on, or the broker's assignor; empty if there is none.
    :param epoch: group epoch of the consumer protocol; like ``assignment_epoch``, -1 in the classic protocol.
    :param operations: authorized operations; None if not in the response.
    """

    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    epoch: int = -1
    assignment_epoch: int = -1
    operations: frozenset[AclOperation] | None = None


class MemberToRemove(NamedTuple):
    """A member to remove: a static member is given by instance id, a dynamic member by member id."""

    instance_id: str | None = None
    member_id: str = ""


class Groups(RequestRouter):
    """Requests for groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[GroupState] = (),
        types: Iterable[GroupType] = (),
        timeout_s: float | None = None,
    ) -> list[GroupListing]:
        """Return the groups of the cluster, sorted by id.

        :param states: states to include; if empty, all are included.
        :param types: types to include; if empty, all are included.
        :raise ClientError: a live broker did not respond or does not support the filter.
        """
        body = {"states_filter": [each.value for each in states], "types_filter": [each.value for each in types]}

        async def send(connection: BrokerConnection) -> list[dict[str, Any]]:
            if body["states_filter"]:
                require_version(connection, LIST_GROUPS, STATES_FROM, "filters by state")
            if body["types_filter"]:
                require_version(connection, LIST_GROUPS, TYPES_FROM, "filters by type")
            response = await self._cluster.request(connection, LIST_GROUPS, body)
            check(response, f"groups of {connection.peer}")
            return list(response["groups"])

        results = await self.at_all_brokers(send, timeout_s)
        listings = {row["group_id"]: _listing(row) for rows in results.values() for row in rows}
        return [listings[group_id] for group_id in sorted(listings)]

    async def describe_groups(
        self, group_ids: Iterable[str], *, operations: bool = False, timeout_s: float | None = None
    ) -> Outcomes[str, GroupDescription]:
        """Describe groups of both protocols.

        :param operations: include the operations that the client is authorized to perform.
        """

        async def send(connection: BrokerConnection, share: list[str]) -> Results[str, GroupDescription]:
            results: dict[str, GroupDescription | ClientError] = {}
            if supports(connection, CONSUMER_GROUP_DESCRIBE):
                body = {"group_ids": share, "include_authorized_operations": operations}
                response = await self._cluster.request(connection, CONSUMER_GROUP_DESCRIBE, body)
                results |= {row["group_id"]: _consumer_group(row) for row in response["groups"]}
            classic = [each for each in share if each not in results or _may_be_classic(results[each])]
            if classic:
                body = {"groups": classic, "include_authorized_operations": operations}
                response = await self._cluster.request(connection, DESCRIBE_GROUPS, body)
                results |= {row["group_id"]: _classic_group(row) for row in response["groups"]}
            return results

        return await self.at_coordinators(CoordinatorKind.GROUP, group_ids, send, timeout_s)

    async def describe_group(self, group_id: str, *, timeout_s: float | None = None) -> GroupDescription:
        """Describe one group.

        :raise BrokerRefused: GROUP_ID_NOT_FOUND.
        """
        return (await self.describe_groups([group_id], timeout_s=timeout_s))[group_id]

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> Outcomes[str, None]:
        """Delete groups that have no members, with their committed offsets."""

        async def send(connection: BrokerConnection, share: list[str]) -> Results[str, None]:
            response = await self._cluster.request(connection, DELETE_GROUPS, {"groups_names": share})
            return {row["group_id"]: outcome(row, f"group {row['group_id']}") for row in response["results"]}

        return await self.at_coordinators(CoordinatorKind.GROUP, group_ids, send, timeout_s)

    async def delete_group(self, group_id: str, *, timeout_s: float | None = None) -> None:
        """Delete a group that has no members.

        :raise BrokerRefused: the group has members or does not exist.
        """
        (await self.delete_groups([group_id], timeout_s=timeout_s)).raise_first()

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout_s: float | None = None,
    ) -> Outcomes[MemberToRemove, None]:
        """Remove members from a classic group, which then rebalances (KIP-345, KIP-800).

        :param members: members to remove; None removes all current members.
        :raise ClientError: the group's members could not be requested.
        """
        if members is None:
            described = await self.describe_group(group_id, timeout_s=timeout_s)
            members = [MemberToRemove(each.instance_id, each.member_id) for each in described.members]
        attempts = 0

        async def send(connection: BrokerConnection, share: list[MemberToRemove]) -> Results[MemberToRemove, None]:
            nonlocal attempts
            require_version(connection, LEAVE_GROUP, SEVERAL_MEMBERS_FROM, "several members")
            attempts += 1
            is_first = attempts == 1
            rows = [
                {"member_id": each.member_id, "group_instance_id": each.instance_id, "reason": reason} for each in share
            ]
            response = await self._cluster.request(connection, LEAVE_GROUP, {"group_id": group_id, "members": rows})
            check(response, f"group {group_id}")
            return _removed_members(response["members"], share, is_first=is_first)

        return await self.at_coordinator(CoordinatorKind.GROUP, group_id, members, send, timeout_s)


def _listing(row: dict[str, Any]) -> GroupListing:
    return GroupListing(
        row["group_id"],
        row["protocol_type"],
        GroupState(row.get("group_state", "")),
        GroupType(row.get("group_type", "")),
    )


def _may_be_classic(result: GroupDescription | ClientError) -> bool:
    codes = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(result, BrokerRefused) and result.code in codes


def _consumer_group(row: dict[str, Any]) -> GroupDescription | ClientError:
    error = outcome(row, f"group {row['group_id']}")
    if error is not None:
        return error
    return GroupDescription(
        row["group_id"],
        GroupType.CONSUMER,
        GroupState(row["group_state"]),
        CONSUMERS,
        row["assignor_name"],
        tuple(_consumer_member(each) for each in row["members"]),
        row["group_epoch"],
        row["assignment_epoch"],
        parse_operations(row["authorized_operations"]),
    )


def _consumer_member(row: dict[str, Any]) -> MemberDescription:
    return MemberDescription(
        row["member_id"],
        row["instance_id"],
        row["client_id"],
        row["client_host"],
        tuple(row["subscribed_topic_names"]),
        _partitions(row["assignment"]["topic_partitions"], "topic_name"),
        row["rack_id"],
        row["member_epoch"],
        _partitions(row["target_assignment"]["topic_partitions"], "topic_name"),
    )


def _classic_group(row: dict[str, Any]) -> GroupDescription | ClientError:
    what, state = f"group {row['group_id']}", GroupState(row["group_state"])
    error = outcome(row, what)
    if error is not None:
        return error
    if state is GroupState.DEAD:  # before version 6, brokers report a nonexistent group as DEAD (KIP-1043)
        return BrokerRefused(ErrorCode.GROUP_ID_NOT_FOUND, what)
    return GroupDescription(
        row["group_id"],
        GroupType.CLASSIC,
        state,
        row["protocol_type"],
        row["protocol_data"],
        tuple(_classic_member(each, row["protocol_type"]) for each in row["members"]),
        operations=parse_operations(row.get("authorized_operations", NO_OPERATIONS)),
    )


def _classic_member(row: dict[str, Any], protocol_type: str) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assignment: frozenset[TopicPartition] = frozenset()
    if protocol_type == CONSUMERS:
        topics = tuple(_parse(SUBSCRIPTION, row["member_metadata"]).get("topics", ()))
        assignment = _partitions(_parse(ASSIGNMENT, row["member_assignment"]).get("assigned_partitions", ()), "topic")
    instance_id = row.get("group_instance_id")
    return MemberDescription(row["member_id"], instance_id, row["client_id"], row["client_host"], topics, assignment)


def _parse(schema: Schema, data: bytes) -> dict[str, Any]:
    """Parse a member's metadata; return an empty mapping if it is missing or malformed."""
    try:
        return parse_versioned(schema, data)[1] if data else {}
    except ProtocolError:
        return {}


def _partitions(rows: Iterable[dict[str, Any]], name: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(row[name], partition) for row in rows for partition in row["partitions"])


def _removed_members(
    rows: Iterable[dict[str, Any]], requested: Iterable[MemberToRemove], *, is_first: bool
) -> Results[MemberToRemove, None]:
    """Parse a LeaveGroup response; a member that a retry reports as unknown was removed by an earlier attempt."""
    results = {}
    for row, member in zip(rows, requested, strict=True):
        error = outcome(row, f"member {member.instance_id or member.member_id}")
        is_gone = error is not None and error.code is ErrorCode.UNKNOWN_MEMBER_ID and not is_first
        results[member] = None if is_gone else error
    return results
