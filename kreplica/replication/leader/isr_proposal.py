"""Computes the ISR change that a leader proposes for its partition's state znode."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kreplica.cluster import eligible_leaders
from kreplica.model import NO_BROKER_EPOCH, LeaderAndIsr
from kreplica.replication.leader import isr_membership
from kreplica.replication.leader.followers import Progress
from kreplica.replication.leadership import Leadership


class Proposal(NamedTuple):
    """Partition state that a leader wants to write in place of the current one.

    :param base: the state to replace.
    :param joining: new members of ``isr``, each with the broker epoch of its fetches.
    """

    base: Leadership
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    joining: tuple[tuple[int, int], ...]

    @property
    def state(self) -> LeaderAndIsr:
        """The znode content; the leader and the epochs are those assigned by the controller."""
        base = self.base
        return LeaderAndIsr(
            base.leader, base.leader_epoch, self.isr, base.controller_epoch, base.partition_epoch, self.eligible
        )


def propose(
    base: Leadership,
    followers: Mapping[int, Progress],
    *,
    lagging: Collection[int],
    high_watermark: int,
    epoch_start_offset: int,
    in_sync_required: int,
    unregistered_epochs: Mapping[int, int],
) -> Proposal | None:
    """Return the state to write, or None if the current state is correct.

    :param lagging: lagging replicas. They must leave and must not join, even if they have all committed records;
        otherwise a dead replica would join and leave repeatedly while the high watermark does not advance.
    :param unregistered_epochs: by broker, the epoch of its last registration that has ended; fetches with this or an
        earlier epoch are ignored.
    """
    remaining = tuple(replica for replica in base.isr if replica not in lagging)
    joining = tuple(
        (replica, progress.broker_epoch)
        for replica, progress in followers.items()
        if replica not in base.isr
        and replica not in lagging
        and progress.broker_epoch > unregistered_epochs.get(replica, NO_BROKER_EPOCH)
        and isr_membership.may_join(progress, high_watermark=high_watermark, epoch_start_offset=epoch_start_offset)
    )
    isr = (*remaining, *(replica for replica, _ in joining))
    eligible = eligible_leaders.eligible_after(
        base.isr, base.eligible, isr, in_sync_required=in_sync_required, replicas=base.replicas
    )
    if isr == base.isr and eligible == base.eligible:
        return None
    return Proposal(base, isr, eligible, joining)
