"""Options of a group member."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GroupProtocol(StrEnum):
    """Group protocol."""

    AUTO = "auto"
    """KIP-848 if the broker supports it and the group is not a classic group; otherwise classic."""

    CLASSIC = "classic"
    """The group's leader assigns partitions (JoinGroup, SyncGroup)."""

    CONSUMER = "consumer"
    """The coordinator assigns partitions (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Options of a group member; times in seconds.

    :param group_id: the group.
    :param instance_id: makes the member static (KIP-345): it keeps its assignment if it restarts before its session
        expires.
    :param protocol: ``auto``, ``classic`` or ``consumer``.
    :param assignors: assignors of the classic protocol in order of preference: ``range``, ``roundrobin``, ``sticky``,
        ``cooperative-sticky``.  If all are cooperative, only partitions that move are revoked (KIP-429).
    :param remote_assignor: assignor of the consumer protocol, ``uniform`` or ``range``; None selects the default.
    :param session_timeout_s: a member that sends no heartbeats for this time is removed.  In the consumer protocol the
        broker has its own timeout, which must not be shorter than this one.
    :param heartbeat_interval_s: interval in the classic protocol; in the consumer protocol, the broker sets it.
    :param rebalance_timeout_s: maximum time for releasing partitions.
    :param rack: rack of the member, for rack-aware assignors and for fetching from a nearby replica.
    :raise ValueError: options contradict each other.
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
            raise ValueError("group_id must not be empty")
        if self.instance_id == "":
            raise ValueError("instance_id must not be empty")
        GroupProtocol(self.protocol)
        if not 0 < self.heartbeat_interval_s < self.session_timeout_s:
            raise ValueError("heartbeat_interval_s must be positive and less than session_timeout_s")
        if self.rebalance_timeout_s <= 0:
            raise ValueError("rebalance_timeout_s must be greater than 0")

    @property
    def patience_s(self) -> float:
        """Time after the last acknowledged heartbeat during which the group cannot have removed this member.

        The group removes a member without heartbeats after the session timeout, or, during a rebalance, after the
        rebalance timeout.
        """
        return min(self.session_timeout_s, self.rebalance_timeout_s)
