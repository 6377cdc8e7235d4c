"""One partition on this broker: its log, its leadership and its role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import eligible_leaders
from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import NO_EPOCH, LeaderAndIsr, TopicPartition
from kreplica.replication import controller_fence
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import LeaderContext, LeaderState
from kreplica.replication.leadership import NO_LEADERSHIP, Leadership
from kreplica.replication.purgatory import Watcher
from kreplica.replication.role import FollowerRole, OfflineRole, Role, StoppedRole
from kreplica.runtime.disk import Buffer
from kreplica.runtime.empty_dict import EMPTY_DICT
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.log.appending import append_as_follower
from kreplica.storage.log.checks import read_error
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import AppendResult, LogSlice, Outcome
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.segments.damage import Damage
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker, build_end_marker

_log = Logger()

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Partition:
    """A partition on this broker, owned by ``Partitions``.

    No method blocks; operations that must wait register in ``watchers``.

    :param min_insync_replicas: topic setting; updated when it changes.
    :param role_changed: called each time a role is assigned, even if it is the same role in a new epoch.
    :ivar bytes_out: bytes of records sent to consumers since this broker started.
    :ivar leader_state: state of the leader role; None if this broker does not lead.
    :ivar leadership_generation: number of times this broker stopped leading; while it is unchanged, no appended record
        was truncated.
    """

    __slots__ = (
        "_context",
        "_last_proposed",
        "bytes_out",
        "high_watermark",
        "leadership",
        "leadership_generation",
        "log",
        "min_insync_replicas",
        "role",
        "role_changed",
        "topic_id",
        "topic_partition",
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
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.role: Role = StoppedRole(self)
        self.role_changed = role_changed
        self.leadership = NO_LEADERSHIP
        self.watchers: dict[Watcher, None] = EMPTY_DICT
        self.min_insync_replicas = min_insync_replicas
        self.bytes_out = 0
        self.leadership_generation = 0
        self._last_proposed: Proposal | None = None
        self._context = context
        log.producers.partition = self

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.role.name} epoch {self.leadership.leader_epoch}>"

    def add_watcher(self, watcher: Watcher) -> None:
        if not self.watchers:
            self.watchers = {}
        self.watchers[watcher] = None

    # --- roles -------------------------------------------------------------------------------------------------------

    def lead(self, leadership: Leadership) -> None:
        """Become leader in a new epoch, with the current log end as its start and no follower progress.

        The high watermark keeps its local value until followers have fetched.
        """
        before = self.leader_state
        unresolved = self._unresolved_in(leadership)
        self.leadership = leadership
        role = LeaderState(self, self._context, before.followers if before is not None else {}, unresolved)
        self.role = role
        self.log.begin_leader_epoch(leadership.leader_epoch)
        role.reevaluate()
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
        self._change_role(FollowerRole(self))

    def stop(self) -> None:
        """Stop serving the partition; watchers are notified."""
        self._change_role(StoppedRole(self))

    def go_offline(self) -> None:
        """Mark the partition offline after its log directory failed."""
        self._change_role(OfflineRole(self))

    def _change_role(self, role: Role) -> None:
        former, self.role = self.leader_state, role
        if former is not None:
            self._last_proposed = former.proposed
            self.log.producers.clear_verifications()
            self.leadership_generation += 1
        self._context.purgatory.mark(self)
        self._notify_role_changed()

    def _notify_role_changed(self) -> None:
        if self.role_changed is not None:
            self.role_changed(self)

    def step_down(self, state: LeaderAndIsr) -> None:
        """Stop leading because the state znode has a later leader epoch, whose command has not arrived yet."""
        leader_epoch = max(state.leader_epoch, self.leadership.leader_epoch)
        self.leadership = self.leadership._replace(leader=state.leader, leader_epoch=leader_epoch)
        self.stop()

    def update_within_epoch(self, leadership: Leadership) -> None:
        """Apply a LeaderAndIsr request for the current leader epoch.

        The ISR in the request counts only if it is newer than the leader's own last write.
        """
        current, leader_state = self.leadership, self.leader_state
        if leadership.partition_epoch <= current.partition_epoch:
            leadership = leadership._replace(
                isr=current.isr, eligible=current.eligible, partition_epoch=current.partition_epoch
            )
        elif leader_state is not None:
            # The state znode has a newer version: a pending write is included in it or will never take effect.
            leader_state.proposed = None
        if leadership != current:
            self.leadership = leadership
            self.role.state_changed()

    @property
    def leader_state(self) -> LeaderState | None:
        """State of the leader role; None if this broker does not lead."""
        return self.role if isinstance(self.role, LeaderState) else None

    @property
    def is_leader(self) -> bool:
        return self.role.is_leader

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads the partition (KIP-320).

        :param current_leader_epoch: epoch known to the client; -1 is not checked.
        :raise KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if not self.role.is_leader:
            raise self.role.unavailable()
        if current_leader_epoch != NO_EPOCH:
            self._check_epoch(current_leader_epoch)

    def check_replica(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless consumers may read from this replica, as leader or follower (KIP-392).

        :raise KafkaError: the errors of ``check_leader``.
        """
        if not self.role.is_active:
            raise self.role.unavailable()
        if current_leader_epoch != NO_EPOCH:
            self._check_epoch(current_leader_epoch)

    def _check_epoch(self, requested: int) -> None:
        own = self.leadership.leader_epoch
        if not controller_fence.is_of_leader_epoch(requested, own):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if requested < own else ErrorCode.UNKNOWN_LEADER_EPOCH)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, *, isolation: int, at_least_one: bool) -> LogSlice:
        """Return the batches from the one that contains ``offset`` up to the last offset that a consumer may read.

        See ``Log.read``. Between the high watermark and the log end the result is empty, because the high watermark may
        still advance.
        """
        return self.log.read(
            offset, size_max=size_max, offset_max=self.visible_end(isolation), at_least_one=at_least_one
        )

    def read_failed(self, offset: int, error: OSError | StorageError) -> KafkaError:
        """Handle a failed read and return the error for the response."""
        if isinstance(error, OSError):
            error = read_error(self.log, offset, error)
        if isinstance(error, Damage):
            self.log.report_damage(error)
        else:
            _log.error("reading {partition} failed: {error}", partition=str(self.topic_partition), error=str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def visible_end(self, isolation: int) -> int:
        """Return the first offset that a consumer may not read yet."""
        if isolation == READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def acknowledgeable_end_offset(self) -> int:
        """The end offset that this replica may acknowledge; with ``flush.messages=1`` the end of the synced records."""
        log = self.log
        return log.durability.recovery_point if log.config.flush_messages <= 1 else log.log_end_offset

    def is_durable(self, offset: int) -> bool:
        """True if this replica has all records below ``offset`` with the durability that the topic requires."""
        return self.acknowledgeable_end_offset >= offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch up to ``epoch``, and its end offset (KIP-101, KIP-279).

        The current epoch ends at the log end; (-1, -1) if ``epoch`` is above all known epochs.
        """
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def is_committed(self, offset: int) -> bool:
        """True if all records below ``offset`` are committed."""
        return self.high_watermark >= offset

    # --- truncation --------------------------------------------------------------------------------------------------

    def fetch_position(self) -> tuple[int, int]:
        """Return the follower's fetch offset (its log end) and the leader epoch of its last record, -1 if unknown."""
        end_offset = self.log.log_end_offset
        return end_offset, self.log.leader_epochs.epoch_of(end_offset - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains ``offset`` and all later ones.

        :raise OSError: the device failed.
        """
        self.high_watermark = min(self.high_watermark, self.log.truncate_to(offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and start the log at ``offset``, because the leader's log starts there.

        :raise OSError: the device failed.
        """
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

    # --- appends -----------------------------------------------------------------------------------------------------

    @property
    def in_sync_required(self) -> int:
        """Minimum ISR size for ``acks=all`` and for the high watermark to advance."""
        return eligible_leaders.required_isr_size(self.min_insync_replicas, len(self.leadership.replicas))

    def append(
        self,
        batches: Sequence[Buffer],
        now_ms: int,
        *,
        all_in_sync: bool,
        origin: Origin = Origin.CLIENT,
        transaction: BatchHeader | None = None,
    ) -> Sequence[Outcome]:
        """Append batches as leader, consecutive ones with one system call.

        :param all_in_sync: True for ``acks=all``.
        :param transaction: header of the only batch if it belongs to a transaction. The transaction must be open in
            this partition or verified (KIP-890), otherwise the error is INVALID_TXN_STATE.
        :return: result or error of each batch, in order.
        """
        return self.role.append(batches, now_ms, all_in_sync=all_in_sync, origin=origin, transaction=transaction)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int, *, bumps_epoch: bool
    ) -> AppendResult:
        """Append an end-transaction marker with ``acks=all``, even if the transaction is not open here.

        :param bumps_epoch: the producer epoch increases with each transaction, and the marker has the next one
            (KIP-890).
        :raise KafkaError: the errors of ``append_own``; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if
            the marker is stale.
        """
        producers = self.log.producers
        if self.role.is_leader:
            producers.check_end(producer_id, producer_epoch, bumps_epoch=bumps_epoch)
        result = self.append_own(build_end_marker(marker, producer_id, producer_epoch, now_ms), now_ms)
        producers.verifications.marker_written(producer_id, producer_epoch, bumps_epoch=bumps_epoch)
        return result

    def append_own(self, records: Buffer, now_ms: int, *, in_transaction: bool = False) -> AppendResult:
        """Append one batch of a coordinator on this broker with ``acks=all``.

        It may be an end-transaction marker, or have a producer ID without a sequence number.

        :param in_transaction: the batch belongs to a client's transaction, which must be open here or verified;
            otherwise INVALID_TXN_STATE is raised (KIP-890).
        :raise KafkaError: the batch is invalid, or this broker may not append; the log is unchanged.
        """
        header = header_at(records, 0) if in_transaction else None
        if header is not None and self.role.is_leader:
            self.log.producers.check_transaction(header)
        (outcome,) = self.append((records,), now_ms, all_in_sync=True, origin=Origin.COORDINATOR)
        if type(outcome) is AppendResult:
            return outcome
        raise outcome

    def append_as_follower(
        self, records: Buffer, *, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> None:
        """Append records that the leader returned for this log's end.

        :param records: batches, possibly none; the first invalid or incomplete batch and all later ones are ignored.
        :param leader_high_watermark: the local high watermark follows it up to the log end and never decreases.
        :param leader_log_start_offset: lower bound for the local log start offset.
        :raise KafkaError: CORRUPT_MESSAGE (no valid batch), OFFSET_OUT_OF_RANGE (a batch starts below the log end) or
            NOT_LEADER_OR_FOLLOWER, with the log unchanged; KAFKA_STORAGE_ERROR if the write failed, possibly after
            some batches.
        """
        if not self.role.is_follower:
            raise self.role.unavailable()
        log = self.log
        if len(records):
            appended = append_as_follower(log, records, now_ms=now_ms, leader_epoch=self.leadership.leader_epoch)
            if not appended.size:
                # An error causes a backoff; an immediate fetch would return the same bytes.
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no complete batch at offset {log.log_end_offset}")
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

    # --- changes -----------------------------------------------------------------------------------------------------

    def log_synced(self) -> None:
        """Re-evaluate the high watermark and notify watchers after a sync of the log."""
        self.role.advance()
        self._context.purgatory.mark(self)

    def settings_changed(self, min_insync_replicas: int) -> None:
        """Apply changed topic settings; the log already uses them."""
        self.min_insync_replicas = min_insync_replicas
        self.role.state_changed()
        self._context.purgatory.mark(self)
