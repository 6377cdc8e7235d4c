"""Selects the replica from which a consumer reads (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from kreplica.settings.definitions.replication import LEADER_SELECTOR, RACK_AWARE_SELECTOR


class ReplicaView(NamedTuple):
    """An in-sync replica as known to its leader.

    :param log_end_offset: a follower's last fetch offset, or the leader's own log end.
    """

    broker_id: int
    rack: str | None
    log_end_offset: int


class ReplicaSelector(Protocol):
    """Selects among the replicas that have the offset that a consumer requests."""

    def __call__(self, rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int | None:
        """Return the ID of the broker to read from, or None for the leader.

        :param rack: rack of the consumer.
        """


def nearest(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int | None:
    """Return the follower in the consumer's rack with the highest log end offset, or None for the leader.

    A leader in that rack is preferred.
    """
    if leader.rack == rack:
        return None
    near = [replica for replica in followers if replica.rack == rack]
    if not near:
        return None
    return max(near, key=lambda replica: (replica.log_end_offset, -replica.broker_id)).broker_id


SELECTORS: dict[str | None, ReplicaSelector | None] = {
    None: None,
    "": None,
    LEADER_SELECTOR: None,
    RACK_AWARE_SELECTOR: nearest,
}
"""Selectors by the value of ``replica.selector.class``; None if consumers read from the leader."""

RackOf = Callable[[int], str | None]
"""Returns the rack of a live broker, or None if it has no rack or is not live."""
