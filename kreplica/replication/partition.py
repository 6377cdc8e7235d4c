"""One partition on this broker: role, leadership and log."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, LeaderAndIsr, TopicPartition
from kreplica.replication import fencing
from kreplica.replication.leader.followers import UNKNOWN_OFFSET
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import LeaderContext, LeaderState
from kreplica.replication.leadership import NOT_LED, Leadership
from kreplica.replication.purgatory import Watcher
from kreplica.replication.writable_replica import Role, WritableReplica
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.appending import append_as_follower
from kreplica.storage.log.log import Log

_log = Logger()


class Partition(WritableReplica):
    """A partition on this broker, owned by ``Partitions``.

    No method blocks; operations that must wait register in ``watchers``.

    :param min_insync_replicas: topic setting; updated when it changes.
    :param role_changed: called when this broker becomes leader, also in a new epoch, or stops leading.
    :ivar leader_state: state of the leader role; None if this broker does not lead.
    :ivar leadership_generation: number of times this broker stopped leading; while it is unchanged, no appended record
        was truncated.
    """

    __slots__ = (
        "_context",
        "_last_proposed",
        "leadership_generation",
        "role_changed",
        "watchers",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        context: LeaderContext,
        *,
        high_watermark: int,
        min_insync_replicas: int,
        role_changed: Callable[[Partition], None] | None = None,
    ) -> None:
        super().__init__(topic_partition, topic_id, log, high_watermark=high_watermark)
        self.role = Role.STOPPED
        self.role_changed = role_changed
        self.leadership = NOT_LED
        self.watchers: dict[Watcher, None] = {}
        self.min_insync_replicas = min_insync_replicas
        self.leader_state: LeaderState | None = None
        self.leadership_generation = 0
        self._last_proposed: Proposal | None = None
        self._context = context

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.role.value} epoch {self.leadership.leader_epoch}>"

    # --- roles -------------------------------------------------------------------------------------------------------

    def lead(self, leadership: Leadership) -> None:
        """Become leader in a new epoch, with the current log end as its start and no follower progress.

        The high watermark keeps its local value until followers have fetched.
        """
        known = self.leader_state.followers if self.leader_state is not None else {}
        unresolved = self._unresolved_in(leadership)
        self.leadership = leadership
        self.role = Role.LEADER
        self.leader_state = LeaderState(self, self._context, known, unresolved)
        self.log.begin_leader_epoch(leadership.leader_epoch)
        self.leader_state.reevaluate()
        self._notify_role_changed()

    def _unresolved_in(self, leadership: Leadership) -> Proposal | None:
        """Return the last ISR proposal if it has the same leader epoch and its write may still take effect."""
        last = self._last_proposed
        if last is None or last.base.leader_epoch != leadership.leader_epoch:
            return None
        return last if last.base.partition_epoch >= leadership.partition_epoch else None

    def follow(self, leadership: Leadership) -> None:
        """Stop leading and follow another broker; watchers are notified."""
        self.leadership = leadership
        self._relinquish_leadership(Role.FOLLOWER)

    def stop(self) -> None:
        """Stop serving the partition; watchers are notified."""
        self._relinquish_leadership(Role.STOPPED)

    def go_offline(self) -> None:
        """Mark the partition offline after its log directory failed."""
        self._relinquish_leadership(Role.OFFLINE)

    def _relinquish_leadership(self, role: Role) -> None:
        self.role = role
        if self.leader_state is not None:
            self._last_proposed = self.leader_state.proposed
            self.leader_state = None
            self.log.producers.verifications.clear()
            self.leadership_generation += 1
        self._context.purgatory.mark(self)
        self._notify_role_changed()

    def _notify_role_changed(self) -> None:
        if self.role_changed is not None:
            self.role_changed(self)

    def step_down(self, state: LeaderAndIsr) -> None:
        """Stop leading after the state znode showed a later leader epoch, before the controller's command arrives."""
        leader_epoch = max(state.leader_epoch, self.leadership.leader_epoch)
        self.leadership = self.leadership._replace(leader=state.leader, leader_epoch=leader_epoch)
        self.stop()

    def update_within_epoch(self, leadership: Leadership) -> None:
        """Apply a LeaderAndIsr request for the current leader epoch.

        The ISR in the request counts only if it is newer than the leader's own last write.
        """
        known, state = self.leadership, self.leader_state
        if leadership.partition_epoch <= known.partition_epoch:
            leadership = leadership._replace(
                isr=known.isr, eligible=known.eligible, partition_epoch=known.partition_epoch
            )
        elif state is not None:
            # The state znode has a newer version: a pending write is included in it or will never take effect.
            state.proposed = None
        if leadership != known:
            self.leadership = leadership
            if state is not None:
                state.state_changed()

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads the partition (KIP-320).

        :param current_leader_epoch: epoch known to the client; -1 is not checked.
        :raise KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if self.role is not Role.LEADER:
            raise self._unavailable()
        if current_leader_epoch != NO_EPOCH:
            self._check_epoch(current_leader_epoch)

    def check_replica(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless consumers may read from this replica, as leader or follower (KIP-392).

        :raise KafkaError: as ``check_leader``.
        """
        if self.role is not Role.LEADER and self.role is not Role.FOLLOWER:
            raise self._unavailable()
        if current_leader_epoch != NO_EPOCH:
            self._check_epoch(current_leader_epoch)

    def _check_epoch(self, requested: int) -> None:
        own = self.leadership.leader_epoch
        if not fencing.is_of_leader_epoch(requested, own):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if requested < own else ErrorCode.UNKNOWN_LEADER_EPOCH)

    # --- data --------------------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: Buffer, *, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> None:
        """Append records that the leader returned for this log's end.

        :param records: whole batches, possibly none; an incomplete last batch is ignored.
        :param leader_high_watermark: the local high watermark follows it up to the log end and never decreases.
        :param leader_log_start_offset: lower bound for the local log start offset.
        :raise KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (a batch starts below the log end), KAFKA_STORAGE_ERROR
            or NOT_LEADER_OR_FOLLOWER; the log is unchanged.
        """
        if self.role is not Role.FOLLOWER:
            raise self._unavailable()
        log = self.log
        if len(records):
            appended = append_as_follower(log, records, now_ms=now_ms, leader_epoch=self.leadership.leader_epoch)
            if not appended.size:
                # An error causes a backoff; an immediate fetch would return the same bytes.
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {log.log_end_offset}")
        end_offset = log.log_end_offset
        if leader_log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(leader_log_start_offset, end_offset))
        new = min(max(leader_high_watermark, log.log_start_offset), end_offset)
        if new > self.high_watermark:
            self.high_watermark = new
            if self.watchers:
                self._context.purgatory.mark(self)

    def delete_records(self, offset: int) -> int:
        """Advance the log start offset; -1 means the high watermark.

        :return: the offset below which all records are deleted.
        :raise KafkaError: OFFSET_OUT_OF_RANGE if the offset is above the high watermark.
        """
        self.check_leader()
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not between 0 and the high watermark {self.high_watermark} of {self.topic_partition}",
            )
        self.log.advance_log_start_offset(offset)
        if self.watchers:
            self._context.purgatory.mark(self)  # followers learn the new start from their next fetch
        return offset

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

        :param broker_epoch: broker epoch named in the fetch; -1 if absent.
        :raise KafkaError: UNKNOWN_LEADER_EPOCH if the broker is not a replica known to this leader;
            NOT_LEADER_OR_FOLLOWER if a later registration of that broker has fetched already (KIP-903).
        """
        if self.leader_state is None:
            raise self._unavailable()
        self.leader_state.record_fetch(replica_id, broker_epoch, fetch_offset, log_start_offset, now_s)

    def mark_sent(self, replica_id: int, offset: int) -> bool:
        """Record that records from an offset are sent to a follower, and return True if they were sent before.

        A repeated request may mean that the follower could not append them.
        """
        progress = self.leader_state.followers.get(replica_id) if self.leader_state is not None else None
        if progress is None:
            return False
        again = progress.sent_offset == offset
        progress.sent_offset = offset
        return again

    def known_end_offset(self, replica_id: int) -> int | None:
        """Return a follower's log end offset, or None if it has not fetched in this leader epoch."""
        return self.leader_state.known_end_offset(replica_id) if self.leader_state is not None else None

    @property
    def epoch_start_offset(self) -> int:
        """Log end offset at which this leader's epoch started; the current log end if another broker leads."""
        return self.leader_state.epoch_start_offset if self.leader_state is not None else self.log.log_end_offset

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the in-sync replicas (KIP-107)."""
        return self.leader_state.low_watermark if self.leader_state is not None else self.log.log_start_offset

    # --- changes -----------------------------------------------------------------------------------------------------

    def log_synced(self) -> None:
        """Re-evaluate the high watermark and notify watchers after a sync of the log."""
        if self.leader_state is not None:
            self.leader_state.advance()
        self._context.purgatory.mark(self)

    def settings_changed(self, min_insync_replicas: int) -> None:
        """Apply changed topic settings; the log already uses them."""
        self.min_insync_replicas = min_insync_replicas
        if self.leader_state is not None:
            self.leader_state.state_changed()
        self._context.purgatory.mark(self)
