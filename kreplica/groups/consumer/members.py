"""One member of a group: what it asked for, and how far it is on its way to what it was given."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from kreplica.groups.consumer.assignment import Assignment

JOINING = 0
"""The member epoch of a heartbeat that joins, or joins again with nothing."""

LEAVING = -1
"""The member epoch of a heartbeat that leaves for good."""

LEAVING_FOR_A_WHILE = -2
"""The member epoch of a static member's last heartbeat; it also stays the member's epoch until it is back (KIP-848)."""

NOT_SET = -1
"""A rebalance timeout that is not as before; a time or an epoch that was never set."""


class MemberState(IntEnum):
    """How a member stands to its target; the numbers are those of the records."""

    STABLE = 0
    """It has all it may have of the target of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions before it may come to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is at the epoch of its target, and others have yet to give up partitions for it."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member said of itself.

    :param topic_names: sorted.
    :param regular_expression: of names of topics, beside those; None or empty for none.
    :param server_assignor: the one it asks for, or None.
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
    """How far a member has come.

    :param epoch: what its next heartbeat has to say.
    :param previous_epoch: what it may say still, where the last answer did not reach it.
    :param assigned: what it owns, or was told to take.
    :param pending_revocation: what it was told to give up, and owns until it says that it did.
    """

    epoch: int = 0
    previous_epoch: int = NOT_SET
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """One member; never changed, but replaced by another value."""

    member_id: str
    subscription: Subscription = Subscription()
    progress: Progress = Progress()

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that has left for a while."""
        return self.progress.epoch == LEAVING_FOR_A_WHILE
