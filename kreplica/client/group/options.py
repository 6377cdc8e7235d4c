"""How a consumer takes part in its group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GroupProtocol(StrEnum):
    """How members and their coordinator agree on who reads what."""

    AUTO = "auto"
    """That of KIP-848 where the broker offers it and the group is not a classic one; else the classic one."""

    CLASSIC = "classic"
    """The members' leader shares partitions out (JoinGroup, SyncGroup)."""

    CONSUMER = "consumer"
    """The coordinator shares partitions out (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """A member's options; seconds.

    :param group_id: whose member it is.
    :param instance_id: makes a static member (KIP-345): whoever comes back under it within the session has what it had.
    :param protocol: ``auto``, ``classic`` or ``consumer``.
    :param assignors: of the classic protocol, the preferred one first: ``range``, ``roundrobin``, ``sticky``,
        ``cooperative-sticky``.  Where all are cooperative, partitions are given up only when they move (KIP-429).
    :param remote_assignor: of the consumer protocol, ``uniform`` or ``range``; None: the coordinator chooses.
    :param session_timeout_s: a member that was not heard of for so long is taken for dead.  In the consumer protocol
        brokers have their own; this should not be longer.
    :param heartbeat_interval_s: in the consumer protocol brokers say another one.
    :param rebalance_timeout_s: so long may it take to give partitions up.
    :param rack: where this member is, for assignors that look at that, and for reading nearby.
    :raise ValueError: the options contradict themselves.
    """

    group_id: str
    instance_id: str | None = None
    protocol: GroupProtocol | str = GroupProtocol.AUTO
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    remote_assignor: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    rebalance_timeout_s: float = 300.0
    rack: str | None = None

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ValueError("a group needs an id")
        if self.instance_id == "":
            raise ValueError("an instance id is not empty")
        GroupProtocol(self.protocol)
        if not 0 < self.heartbeat_interval_s < self.session_timeout_s:
            raise ValueError("heartbeats come more than once in a session")
        if self.rebalance_timeout_s <= 0:
            raise ValueError("a rebalance takes some time")

    @property
    def patience_s(self) -> float:
        """How long after the last heartbeat that was answered partitions are this member's for sure.

        The group waits a session for who is silent, and in a rebalance no longer than that may take.
        """
        return min(self.session_timeout_s, self.rebalance_timeout_s)
