"""One partition that this broker leads, in one leader epoch: who follows, who is in sync, what is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import LeaderAndIsr
from kreplica.replication.leader import high_watermark, in_sync, isr_proposal
from kreplica.replication.leader.followers import UNKNOWN_OFFSET, Progress, in_epoch
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.lease import Lease
from kreplica.replication.leadership import Leadership
from kreplica.replication.purgatory import Wakeups, Watched
from kreplica.storage.log.log import Log

NOBODY: Mapping[int, int] = {}


class LedPartition(Watched, Protocol):
    """The partition that a leader state belongs to."""

    leadership: Leadership
    high_watermark: int

    @property
    def log(self) -> Log: ...

    @property
    def led(self) -> Led | None: ...

    @property
    def end_offset_that_counts(self) -> int: ...

    @property
    def in_sync_required(self) -> int: ...

    def step_down(self, state: LeaderAndIsr) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of one broker have in common.

    :param seconds: a clock that never goes back.
    :param propose: told of a partition whose in-sync set may have to change; asks for its ``proposal`` later.
    :param lag_s_max: ``replica.lag.time.max.ms``.
    """

    broker_id: int
    wakeups: Wakeups
    lease: Lease
    seconds: Callable[[], float]
    propose: Callable[[Led], None]
    lag_s_max: float


class Led:
    """Made when this broker begins to lead, and of no use in the next leader epoch.

    :param known: the followers of the epoch before, where this broker led in that too.
    :param unresolved: a change of the in-sync set of which nobody knows whether it was written, where this broker has
        led in the same epoch before.
    :ivar followers: every other replica, by its broker's id.
    :ivar epoch_start_offset: where the log ended when this leader began.
    :ivar proposed: the change of the in-sync set that is being written, or of which nobody knows whether it was.
    """

    __slots__ = ("_counted", "_surroundings", "epoch_start_offset", "followers", "partition", "proposed")

    def __init__(
        self,
        partition: LedPartition,
        surroundings: Surroundings,
        known: Mapping[int, Progress],
        unresolved: Proposal | None = None,
    ) -> None:
        self.partition = partition
        self.epoch_start_offset = partition.log.log_end_offset
        self.proposed = unresolved
        self.followers = in_epoch(known, partition.leadership, surroundings.broker_id, surroundings.seconds())
        self._surroundings = surroundings
        self._count()

    @property
    def is_over(self) -> bool:
        """Whether this broker does not lead any more, or in another epoch."""
        return self.partition.led is not self

    @property
    def has_lease(self) -> bool:
        """Whether no other broker can have been told to lead yet; where there is no other, none will be."""
        return not self.followers or self._surroundings.lease.holds()

    def state_changed(self) -> None:
        """The partition's ``leadership`` is another, in the same leader epoch; or what its topic asks for is."""
        surroundings = self._surroundings
        leadership = self.partition.leadership
        self.followers = in_epoch(self.followers, leadership, surroundings.broker_id, surroundings.seconds())
        self._count()
        self.go_on()

    def go_on(self) -> None:
        """Do what follows from the state that is known."""
        partition = self.partition
        self.advance()
        if self.proposed is not None or (partition.leadership.eligible and self.proposal() is not None):
            self._surroundings.propose(self)
        if partition.waiting:
            self._surroundings.wakeups.mark(partition)

    def _count(self) -> None:
        """Find the followers that count: all that are in sync, or may be by what is being written."""
        followers = self.followers
        isr = self.partition.leadership.isr
        if self.proposed is not None:
            isr = in_sync.union(isr, self.proposed.isr)
        self._counted = [followers[replica] for replica in isr if replica in followers]

    # --- what is committed -------------------------------------------------------------------------------------------

    def appended(self) -> None:
        """There are more records: committed at once where nobody else is in sync, waited for by followers otherwise."""
        if not self._counted:
            self.advance()
        elif self.partition.waiting:
            self._surroundings.wakeups.mark(self.partition)

    def advance(self) -> None:
        """Commit what all have that count."""
        partition = self.partition
        end_offset = partition.end_offset_that_counts
        if self._counted:
            ends = [follower.log_end_offset for follower in self._counted]
            end_offset = high_watermark.held_by_all(end_offset, ends)
        if end_offset <= partition.high_watermark:
            return
        leadership = partition.leadership
        if not high_watermark.may_advance(len(leadership.isr), partition.in_sync_required, len(leadership.eligible)):
            return
        if not self.has_lease:
            self._surroundings.lease.when_back(self)
            return
        partition.high_watermark = end_offset
        if partition.waiting:
            self._surroundings.wakeups.mark(partition)

    def lease_is_back(self) -> None:
        """What stood still because another might lead goes on."""
        if not self.is_over:
            self.advance()

    @property
    def low_watermark(self) -> int:
        """The lowest start of the logs of all in-sync replicas: below it nothing is left anywhere (KIP-107)."""
        own = self.partition.log.log_start_offset
        return min([own, *(follower.log_start_offset for follower in self._counted)])

    # --- followers ---------------------------------------------------------------------------------------------------

    def record_fetch(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_s: float
    ) -> None:
        """See ``Partition.record_fetch``."""
        partition = self.partition
        progress = self.followers.get(replica_id)
        if progress is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{replica_id} is not known as a replica of {partition.topic_partition}",
            )
        if in_sync.is_of_earlier_incarnation(broker_epoch, progress.broker_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} has registered anew since")
        progress.fetched(broker_epoch, fetch_offset, partition.log.log_end_offset, now_s)
        if log_start_offset > progress.log_start_offset:
            progress.log_start_offset = log_start_offset
            self._surroundings.wakeups.mark(partition)
        if replica_id not in partition.leadership.isr and self.proposed is None and self._may_join(progress):
            self._surroundings.propose(self)
        if fetch_offset > partition.high_watermark:
            self.advance()

    def _may_join(self, progress: Progress) -> bool:
        return in_sync.may_join(
            progress, high_watermark=self.partition.high_watermark, epoch_start_offset=self.epoch_start_offset
        )

    def known_end_offset(self, replica_id: int) -> int | None:
        """See ``Partition.known_end_offset``."""
        progress = self.followers.get(replica_id)
        if progress is None or progress.log_end_offset == UNKNOWN_OFFSET:
            return None
        return progress.log_end_offset

    # --- who is in sync ----------------------------------------------------------------------------------------------

    def look_for_lag(self) -> None:
        """Propose what follows from time alone: who lags leaves; who might have joined long ago is tried again."""
        if self.followers and not self._is_at_rest() and self.proposal() is not None:
            self._surroundings.propose(self)

    def _is_at_rest(self) -> bool:
        """Whether every replica is in sync and has everything, as mostly they do: no rule need be asked."""
        leadership = self.partition.leadership
        if len(leadership.isr) != len(leadership.replicas) or leadership.eligible:
            return False
        end_offset, now_s = self.partition.log.log_end_offset, self._surroundings.seconds()
        for progress in self.followers.values():
            if progress.log_end_offset < end_offset:
                return False
            progress.looked_at(end_offset, now_s)
        return True

    def proposal(self, gone: Mapping[int, int] = NOBODY) -> Proposal | None:
        """The state that is to be written now; None where there is nothing to write, or a write is under way.

        :param gone: incarnations that may not join: the last broker epoch by broker.
        """
        if self.is_over or self.proposed is not None:
            return None
        partition = self.partition
        return isr_proposal.propose(
            partition.leadership,
            self.followers,
            late=in_sync.lagging(
                partition.leadership.replicas,
                self.followers,
                leader_end_offset=partition.log.log_end_offset,
                now_s=self._surroundings.seconds(),
                lag_s_max=self._surroundings.lag_s_max,
            ),
            high_watermark=partition.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
            in_sync_required=self.partition.in_sync_required,
            gone=gone,
        )

    def write_begins(self, proposal: Proposal) -> None:
        """From now until its outcome is known both in-sync sets count."""
        self.proposed = proposal
        self._count()

    def written(self, proposal: Proposal, partition_epoch: int) -> bool:
        """It is in the state znode, whose version is ``partition_epoch`` now.

        :return: false where it does not matter any more: this broker was told of a newer state.
        """
        if not self._awaits(proposal):
            return False
        self._take_over(proposal.state, partition_epoch)
        return True

    def not_written(self, proposal: Proposal) -> None:
        """It is certain that it was not and will not be written: the state is what it was."""
        if self._awaits(proposal):
            self.proposed = None
            self.state_changed()

    def was_read(self, proposal: Proposal, state: LeaderAndIsr) -> None:
        """What the state znode holds, read because it is not as expected, or nobody knows what became of the write."""
        if not self._awaits(proposal):
            return
        if state.leader_epoch != proposal.base.leader_epoch:
            # Another leads, or this one in a later epoch; the controller is about to say so.
            self.partition.step_down(state)
        else:
            self._take_over(state, state.partition_epoch)

    def _awaits(self, proposal: Proposal) -> bool:
        return self.proposed is proposal and not self.is_over

    def _take_over(self, state: LeaderAndIsr, partition_epoch: int) -> None:
        self.proposed = None
        known = self.partition.leadership
        self.partition.leadership = known._replace(
            isr=state.isr,
            eligible=state.eligible_leader_replicas,
            partition_epoch=partition_epoch,
            controller_epoch=max(state.controller_epoch, known.controller_epoch),
        )
        self.state_changed()
