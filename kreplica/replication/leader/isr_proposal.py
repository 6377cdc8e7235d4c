"""What a leader wants its partition's state znode to say of who is in sync.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kreplica.cluster import eligible_leaders
from kreplica.model import NO_BROKER_EPOCH, LeaderAndIsr
from kreplica.replication.leader import in_sync
from kreplica.replication.leader.followers import Progress
from kreplica.replication.leadership import Leadership


class Proposal(NamedTuple):
    """A state that a leader wants written in the place of the one that it knows.

    :param base: the state that it replaces.
    :param joining: members of ``isr`` that are not in the base's, with the broker epochs that their fetches carried.
    """

    base: Leadership
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    joining: tuple[tuple[int, int], ...]

    @property
    def state(self) -> LeaderAndIsr:
        """As it goes into the znode: leader and epochs stay as the controller gave them."""
        base = self.base
        return LeaderAndIsr(
            base.leader, base.leader_epoch, self.isr, base.controller_epoch, base.partition_epoch, self.eligible
        )


def propose(
    base: Leadership,
    followers: Mapping[int, Progress],
    *,
    late: Collection[int],
    high_watermark: int,
    epoch_start_offset: int,
    in_sync_required: int,
    gone: Mapping[int, int],
) -> Proposal | None:
    """The state to write now; None where the one that is known is right.

    :param late: replicas that lag: they leave, and do not join, even with all that is committed.  Else one that is not
        heard of any more would join and leave without end while the high watermark stands still.
    :param gone: incarnations that are not registered any more, and may not join: the last broker epoch by broker.
    """
    stay = tuple(replica for replica in base.isr if replica not in late)
    joining = tuple(
        (replica, progress.broker_epoch)
        for replica, progress in followers.items()
        if replica not in base.isr
        and replica not in late
        and progress.broker_epoch > gone.get(replica, NO_BROKER_EPOCH)
        and in_sync.may_join(progress, high_watermark=high_watermark, epoch_start_offset=epoch_start_offset)
    )
    isr = (*stay, *(replica for replica, _ in joining))
    eligible = eligible_leaders.eligible_after(
        base.isr, base.eligible, isr, in_sync_required=in_sync_required, replicas=base.replicas
    )
    if isr == base.isr and eligible == base.eligible:
        return None
    return Proposal(base, isr, eligible, joining)
