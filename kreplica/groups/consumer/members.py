"""Member of a KIP-848 group: its subscription and its progress towards the target assignment."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from kreplica.groups.consumer.assignment import Assignment

JOINING = 0
"""Member epoch in the heartbeat of a member that joins or that rejoins without partitions."""

LEAVING = -1
"""Member epoch in the last heartbeat of a member that leaves the group."""

LEAVING_TEMPORARILY = -2
"""Member epoch in the heartbeat of a static member that leaves temporarily; kept until it rejoins (KIP-848)."""

NOT_SET = -1
"""Value of a rebalance timeout that is unchanged, or of an epoch that has never been set."""


class MemberState(IntEnum):
    """State of a member relative to its target; the values are those used in the records."""

    STABLE = 0
    """Owns all partitions of its target."""
    UNREVOKED_PARTITIONS = 1
    """Must revoke partitions before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """Is at the target epoch and waits for partitions that other members must revoke."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscription and metadata of a member.

    :param topic_names: sorted.
    :param regular_expression: topic pattern that is subscribed to in addition to the names; None or empty if there is
        none.
    :param server_assignor: preferred assignor, or None.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    regular_expression: str | None = None
    rebalance_timeout_ms: int = NOT_SET
    server_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a member towards its target.

    :param epoch: member epoch that its next heartbeat must contain.
    :param previous_epoch: also accepted, because the last response may have been lost.
    :param assigned: partitions that the member owns or that were assigned to it in the last response.
    :param pending_revocation: partitions that the member must revoke and owns until it confirms the revocation.
    """

    epoch: int = 0
    previous_epoch: int = NOT_SET
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """Member of a KIP-848 group; immutable."""

    member_id: str
    subscription: Subscription = Subscription()
    progress: Progress = Progress()

    @property
    def is_away(self) -> bool:
        """True for a static member that has left temporarily."""
        return self.progress.epoch == LEAVING_TEMPORARILY
