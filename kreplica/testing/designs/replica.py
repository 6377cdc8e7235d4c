"""State of a replica in an agent of the first two designs."""

from __future__ import annotations

from kreplica.testing.designs.layout import Partition
from kreplica.testing.simulator.scheduler import Call


class Replica:
    """One replica of the agent's broker.

    :ivar assigned: the assigned replicas (AR), as last read.
    :ivar in_sync: the in-sync replicas (ISR), valid while leading; other assigned replicas are catch-up replicas (CUR).
    :ivar reassigned: target of a reassignment (RAR), or None.
    :ivar has_leader: True if the leader's znode existed when it was last seen.
    :ivar live: replicas whose fetch a new leader waits for; None before they are known.
    """

    __slots__ = ("assigned", "caught_up", "has_leader", "in_sync", "live", "open_timer", "partition", "reassigned")

    def __init__(self, partition: Partition, assigned: tuple[int, ...]) -> None:
        self.partition = partition
        self.assigned = assigned
        self.in_sync: tuple[int, ...] = ()
        self.reassigned: tuple[int, ...] | None = None
        self.has_leader = False
        self.caught_up: set[int] = set()
        self.live: set[int] | None = None
        self.open_timer: Call | None = None
