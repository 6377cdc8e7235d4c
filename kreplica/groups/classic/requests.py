"""What members ask and are answered, whatever version of the protocol they speak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.groups.group import NO_GENERATION, UNKNOWN_MEMBER

Protocols = tuple[tuple[str, bytes], ...]
"""Names of protocols (assignors), the one that is liked best first, each with what the member has to say for it."""


@dataclass(frozen=True, slots=True)
class Join:
    """:param member_id: ``UNKNOWN_MEMBER`` for who is new.
    :param instance_id: of a static member (KIP-345).
    :param requires_known_member: who is new is told its id first, and joins with that (KIP-394).
    :param may_skip_assignment: it understands that it leads, and has nothing to assign (KIP-814).
    :param reason: why it joins, for the log (KIP-800).
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
    """What the leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """:param leader: the member that assigns.
    :param members: all of them for the leader, nobody for the others.
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
    """:param protocol_type: what the member takes it to be; None where it does not say (before version 5).
    :param assignments: by member ids, from the leader; members that are not in it get nothing to do.
    """

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """What a member is to do."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Leave:
    """A member that leaves, or that is removed by its instance id.

    :param member_id: ``UNKNOWN_MEMBER`` where whoever has the instance id is meant.
    """

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class DescribedMember(NamedTuple):
    """What tools see of a member; metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Description:
    """What tools see of a group.

    :param protocol: the chosen one; empty unless the group is stable.
    """

    state_name: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


JoinAnswer = Callable[[Joined], None]
SyncAnswer = Callable[[Synced], None]
