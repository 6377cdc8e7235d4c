"""From which replica a consumer reads (KIP-392): the leader names one that is nearer, and the consumer goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from kreplica.settings.definitions.replication import LEADER_SELECTOR, RACK_AWARE_SELECTOR


class Replica(NamedTuple):
    """An in-sync replica as its leader knows it.

    :param log_end_offset: what its last fetch asked for.
    """

    broker_id: int
    rack: str | None
    log_end_offset: int


class ReplicaSelector(Protocol):
    """Chooses among the replicas that have what a consumer asks for."""

    def __call__(self, rack: str, leader: Replica, followers: Iterable[Replica]) -> int | None:
        """The broker to read from; None for the leader.

        :param rack: the consumer's.
        """


def nearest(rack: str, leader: Replica, followers: Iterable[Replica]) -> int | None:
    """The leader where it is in the consumer's rack, else that follower in the rack which has most; None for none."""
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
"""By the values of ``replica.selector.class``; None where consumers read from the leader."""

RackOf = Callable[[int], str | None]
"""The rack of a live broker; None where it has none, or does not live."""
