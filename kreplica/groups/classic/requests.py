"""Requests of classic group members and the responses to them, independent of API versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.groups.group import NO_GENERATION, UNKNOWN_MEMBER

Protocols = tuple[tuple[str, bytes], ...]
"""Names of the supported protocols (assignors) in order of preference, each with the member's metadata."""


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request.

    :param member_id: ``UNKNOWN_MEMBER`` for a new member.
    :param instance_id: ``group.instance.id`` of a static member (KIP-345); otherwise None.
    :param requires_known_member: a new member first receives an id and joins with it in a second request (KIP-394).
    :param may_skip_assignment: the client supports ``skip_assignment`` in the response (KIP-814).
    :param reason: the client's reason for joining, for the log (KIP-800).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member: bool = False
    may_skip_assignment: bool = False
    reason: str | None = None


class JoinedMember(NamedTuple):
    """An entry for a member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """A JoinGroup response.

    :param leader: id of the member that computes the assignment.
    :param members: all members if the response is sent to the leader; otherwise empty.
    """

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request.

    :param protocol_type: expected protocol type; None before version 5.
    :param assignments: by member id, sent by the leader; members without an entry have an empty assignment.
    """

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True, slots=True)
class SyncResponse:
    """A SyncGroup response."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Leave:
    """A member that leaves or is removed by its instance id.

    :param member_id: ``UNKNOWN_MEMBER`` for the member that currently has the instance id.
    """

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class DescribedMember(NamedTuple):
    """A member in a DescribeGroups response; metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Description:
    """A group in a DescribeGroups response.

    :param protocol: the selected protocol; empty unless the group is stable.
    """

    state_name: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


JoinCallback = Callable[[JoinResponse], None]
SyncCallback = Callable[[SyncResponse], None]
