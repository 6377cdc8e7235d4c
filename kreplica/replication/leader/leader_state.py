"""State of a partition that this broker leads, in one leader epoch: followers, ISR and high watermark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import LeaderAndIsr
from kreplica.replication.leader import high_watermark, isr_membership, isr_proposal
from kreplica.replication.leader.followers import Progress, followers_in_epoch
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.lease import Lease
from kreplica.replication.purgatory import Purgatory
from kreplica.replication.role import UNKNOWN_OFFSET, Role, RolePartition
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.appending import append_all_as_leader, reject
from kreplica.storage.log.results import Outcome
from kreplica.storage.producers.producer_state import Origin
from kreplica.wire.batches import BatchHeader

NO_REPLICAS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """Dependencies shared by all partitions of one broker.

    :param seconds: monotonic clock.
    :param propose: called with a leader state whose ISR may have to change; its ``proposal`` is read later.
    :param lag_s_max: ``replica.lag.time.max.ms`` in seconds.
    """

    broker_id: int
    purgatory: Purgatory
    lease: Lease
    seconds: Callable[[], float]
    propose: Callable[[LeaderState], None]
    lag_s_max: float


class LeaderState(Role):
    """State of the leader role in one leader epoch; replaced in the next one.

    :param earlier: followers of the previous leader state; progress of another epoch is discarded.
    :param unresolved: ISR write of an earlier term in the same epoch, whose outcome is unknown.
    :ivar followers: progress of every other replica, by broker ID.
    :ivar proposed: ISR write that is pending or whose outcome is unknown.
    """

    __slots__ = ("_context", "_counted", "_epoch_start_offset", "followers", "proposed")
    name = "leader"
    is_leader = is_active = True

    def __init__(
        self,
        partition: RolePartition,
        context: LeaderContext,
        earlier: Mapping[int, Progress],
        unresolved: Proposal | None = None,
    ) -> None:
        super().__init__(partition)
        self._epoch_start_offset = partition.log.log_end_offset
        self.proposed = unresolved
        self.followers = followers_in_epoch(earlier, partition.leadership, context.broker_id, context.seconds())
        self._context = context
        self._select_counted()

    @property
    def is_over(self) -> bool:
        """True if this broker no longer leads the partition, or leads it in another epoch."""
        return self.partition.role is not self

    @property
    def has_lease(self) -> bool:
        """True if no other broker can have become leader; always true for a partition without other replicas."""
        return not self.followers or self._context.lease.holds()

    def state_changed(self) -> None:
        context = self._context
        leadership = self.partition.leadership
        self.followers = followers_in_epoch(self.followers, leadership, context.broker_id, context.seconds())
        self._select_counted()
        self.reevaluate()

    def reevaluate(self) -> None:
        """Re-evaluate the high watermark and the ISR."""
        partition = self.partition
        self.advance()
        if self.proposed is not None or (partition.leadership.eligible and self.proposal() is not None):
            self._context.propose(self)
        if partition.watchers:
            self._context.purgatory.mark(partition)

    def _select_counted(self) -> None:
        """Select the followers that count for the high watermark: those in the ISR or in the proposed one."""
        followers = self.followers
        isr = self.partition.leadership.isr
        if self.proposed is not None:
            isr = isr_membership.union(isr, self.proposed.isr)
        self._counted = tuple([followers[replica] for replica in isr if replica in followers])

    # --- appends -----------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[Buffer],
        now_ms: int,
        *,
        all_in_sync: bool,
        origin: Origin,
        transaction: BatchHeader | None,
    ) -> Sequence[Outcome]:
        partition = self.partition
        leadership, log = partition.leadership, partition.log
        try:
            if transaction is not None:
                log.producers.check_transaction(transaction)
            has_lease = self.has_lease
            lacks_replicas = all_in_sync and len(leadership.isr) < partition.in_sync_required
            if leadership.read_only or not has_lease or lacks_replicas:
                raise self._not_appendable(has_lease=has_lease)
        except KafkaError as error:
            return reject(log, batches, error, now_ms)
        outcomes = append_all_as_leader(log, batches, leadership.leader_epoch, now_ms=now_ms, origin=origin)
        self.appended()
        return outcomes

    def _not_appendable(self, *, has_lease: bool) -> KafkaError:
        """Return the reason why this leader may not append now."""
        partition = self.partition
        key, isr = partition.topic_partition, partition.leadership.isr
        if partition.leadership.read_only:
            # All known clients (librdkafka, Java, kafka-python, aiokafka) retry this error after a delay without a
            # metadata refresh, which would still list the partition. Once it is removed they receive
            # UNKNOWN_TOPIC_OR_PARTITION.
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{key} is being removed")
        if not has_lease:
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another broker may lead {key}: ZooKeeper is unreachable"
            )
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(isr)} replicas of {key} are in sync, but {partition.in_sync_required} are required",
        )

    # --- high watermark ----------------------------------------------------------------------------------------------

    def appended(self) -> None:
        """Advance the high watermark after an append if no follower counts, and notify waiting fetches."""
        partition = self.partition
        if not self._counted:
            high_watermark = partition.high_watermark
            self.advance()
            if partition.high_watermark != high_watermark:
                return  # the waiting fetches are notified
        if partition.watchers:
            self._context.purgatory.mark(partition)

    def advance(self) -> None:
        """Advance the high watermark to the smallest log end offset of the counted replicas."""
        partition = self.partition
        end_offset = partition.acknowledgeable_end_offset
        if self._counted:
            ends = [follower.log_end_offset for follower in self._counted]
            end_offset = high_watermark.smallest_log_end_offset(end_offset, ends)
        if end_offset <= partition.high_watermark:
            return
        leadership = partition.leadership
        if not high_watermark.may_advance(len(leadership.isr), partition.in_sync_required, len(leadership.eligible)):
            return
        if not self.has_lease:
            self._context.lease.notify_when_restored(self)
            return
        partition.high_watermark = end_offset
        if partition.watchers:
            self._context.purgatory.mark(partition)

    def lease_restored(self) -> None:
        """Advance the high watermark after the lease was regained."""
        if not self.is_over:
            self.advance()

    @property
    def epoch_start_offset(self) -> int:
        return self._epoch_start_offset

    @property
    def low_watermark(self) -> int:
        own = self.partition.log.log_start_offset
        return min([own, *(follower.log_start_offset for follower in self._counted)])

    # --- followers ---------------------------------------------------------------------------------------------------

    def record_fetch(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        now_s: float,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """Record a follower's fetch offset, which acknowledges all records below it.

        The caller has checked the leader epoch and that the follower's history matches this log.

        :param broker_epoch: broker epoch in the fetch; -1 if absent.
        :raise KafkaError: UNKNOWN_LEADER_EPOCH if the broker is not a replica known to this leader;
            NOT_LEADER_OR_FOLLOWER if a later registration of that broker has already fetched (KIP-903).
        """
        partition = self.partition
        progress = self.followers.get(replica_id)
        if progress is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{replica_id} is not a replica of {partition.topic_partition}",
            )
        if isr_membership.is_of_earlier_incarnation(broker_epoch, progress.broker_epoch):
            text = f"a later registration of broker {replica_id} has already fetched"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        progress.fetched(broker_epoch, fetch_offset, partition.log.log_end_offset, now_s)
        if log_start_offset > progress.log_start_offset:
            progress.log_start_offset = log_start_offset
            self._context.purgatory.mark(partition)
        if replica_id not in partition.leadership.isr and self.proposed is None and self._may_join(progress):
            self._context.propose(self)
        if fetch_offset > partition.high_watermark:
            self.advance()

    def _may_join(self, progress: Progress) -> bool:
        return isr_membership.may_join(
            progress, high_watermark=self.partition.high_watermark, epoch_start_offset=self._epoch_start_offset
        )

    def mark_sent(self, replica_id: int, offset: int) -> bool:
        """Record that records from an offset are sent to a follower, and return True if they were sent before.

        A repeated request may mean that the follower could not append them.
        """
        progress = self.followers.get(replica_id)
        if progress is None:
            return False
        was_sent = progress.sent_offset == offset
        progress.sent_offset = offset
        return was_sent

    def known_end_offset(self, replica_id: int) -> int | None:
        progress = self.followers.get(replica_id)
        if progress is None or progress.log_end_offset == UNKNOWN_OFFSET:
            return None
        return progress.log_end_offset

    # --- ISR ---------------------------------------------------------------------------------------------------------

    def check_lag(self) -> None:
        """Propose removal of lagging followers, and retry followers that could have joined earlier."""
        if self.followers and not self._is_fully_in_sync() and self.proposal() is not None:
            self._context.propose(self)

    def _is_fully_in_sync(self) -> bool:
        """True if every replica is in sync and has all records, which is the common case and needs no further check."""
        leadership = self.partition.leadership
        if len(leadership.isr) != len(leadership.replicas) or leadership.eligible:
            return False
        end_offset, now_s = self.partition.log.log_end_offset, self._context.seconds()
        for progress in self.followers.values():
            if progress.log_end_offset < end_offset:
                return False
            progress.mark_if_caught_up(end_offset, now_s)
        return True

    def proposal(self, unregistered_epochs: Mapping[int, int] = NO_REPLICAS) -> Proposal | None:
        """Return the state to write, or None if nothing changed or a write is pending.

        :param unregistered_epochs: by broker, its last unregistered broker epoch, which may not join.
        """
        if self.is_over or self.proposed is not None:
            return None
        partition = self.partition
        return isr_proposal.propose(
            partition.leadership,
            self.followers,
            lagging=isr_membership.find_lagging(
                partition.leadership.replicas,
                self.followers,
                leader_end_offset=partition.log.log_end_offset,
                now_s=self._context.seconds(),
                lag_s_max=self._context.lag_s_max,
            ),
            high_watermark=partition.high_watermark,
            epoch_start_offset=self._epoch_start_offset,
            in_sync_required=self.partition.in_sync_required,
            unregistered_epochs=unregistered_epochs,
        )

    def write_started(self, proposal: Proposal) -> None:
        """Mark a write as pending; both ISRs count until its outcome is known."""
        self.proposed = proposal
        self._select_counted()

    def written(self, proposal: Proposal, partition_epoch: int) -> bool:
        """Apply a successful write.

        :param partition_epoch: new version of the state znode.
        :return: False if the write is obsolete because the controller sent a newer state.
        """
        if not self._awaits(proposal):
            return False
        self._apply_state(proposal.state, partition_epoch)
        return True

    def not_written(self, proposal: Proposal) -> None:
        """Discard a write that certainly did not take effect and never will."""
        if self._awaits(proposal):
            self.proposed = None
            self.state_changed()

    def state_read(self, proposal: Proposal, state: LeaderAndIsr) -> None:
        """Apply the state read from the znode after a conflict or an unknown outcome."""
        if not self._awaits(proposal):
            return
        if state.leader_epoch != proposal.base.leader_epoch:
            # Another broker leads, or this one in a later epoch; the controller will send the new state.
            self.partition.step_down(state)
        else:
            self._apply_state(state, state.partition_epoch)

    def _awaits(self, proposal: Proposal) -> bool:
        return self.proposed is proposal and not self.is_over

    def _apply_state(self, state: LeaderAndIsr, partition_epoch: int) -> None:
        self.proposed = None
        current = self.partition.leadership
        self.partition.leadership = current._replace(
            isr=state.isr,
            eligible=state.eligible_leader_replicas,
            partition_epoch=partition_epoch,
            controller_epoch=max(state.controller_epoch, current.controller_epoch),
        )
        self.state_changed()
