"""One partition as this broker holds it: its role, its log, and what is committed."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, LeaderAndIsr, TopicPartition
from kreplica.replication import fencing
from kreplica.replication.leader.followers import UNKNOWN_OFFSET
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import Led, Surroundings
from kreplica.replication.leadership import NOT_LED, Leadership
from kreplica.replication.purgatory import Watcher
from kreplica.replication.writable_replica import Role, WritableReplica
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.log import Log

_log = Logger()


class Partition(WritableReplica):
    """Owned by ``Partitions``.  Every method is a plain call: what must wait, waits in ``waiting``.

    :param min_insync_replicas: of the topic; set again when its settings change.
    :param role_changed: told when this broker leads, in a new epoch perhaps, or ceases to.
    :ivar led: what belongs to leading it; None where this broker does not.
    :ivar tenures_over: how often it ceased to lead; while that stays, nothing that it appended was taken back.
    """

    __slots__ = (
        "_last_proposed",
        "_surroundings",
        "role_changed",
        "tenures_over",
        "waiting",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        surroundings: Surroundings,
        *,
        high_watermark: int,
        min_insync_replicas: int,
        role_changed: Callable[[Partition], None] | None = None,
    ) -> None:
        super().__init__(topic_partition, topic_id, log, high_watermark=high_watermark)
        self.role = Role.STOPPED
        self.role_changed = role_changed
        self.leadership = NOT_LED
        self.waiting: dict[Watcher, None] = {}
        self.min_insync_replicas = min_insync_replicas
        self.led: Led | None = None
        self.tenures_over = 0
        self._last_proposed: Proposal | None = None
        self._surroundings = surroundings

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.role.value} epoch {self.leadership.leader_epoch}>"

    # --- roles -------------------------------------------------------------------------------------------------------

    def lead(self, leadership: Leadership) -> None:
        """Become the leader in a new epoch: its start is the log's end, and nothing is known of any follower.

        The high watermark goes on from where it was here: what more was committed is known when followers have fetched.
        """
        known = self.led.followers if self.led is not None else {}
        unresolved = self._unresolved_in(leadership)
        self.leadership = leadership
        self.role = Role.LEADER
        self.led = Led(self, self._surroundings, known, unresolved)
        self.log.begin_leader_epoch(leadership.leader_epoch)
        self.led.go_on()
        self._tell_role()

    def _unresolved_in(self, leadership: Leadership) -> Proposal | None:
        """A write of its last tenure that may be in the state znode, or get there, for all that is told now."""
        last = self._last_proposed
        if last is None or last.base.leader_epoch != leadership.leader_epoch:
            return None
        return last if last.base.partition_epoch >= leadership.partition_epoch else None

    def follow(self, leadership: Leadership) -> None:
        """Stop leading; whoever waits is told that the leader is another."""
        self.leadership = leadership
        self._lead_no_more(Role.FOLLOWER)

    def stop(self) -> None:
        """Serve nothing any more; whoever waits is told."""
        self._lead_no_more(Role.STOPPED)

    def go_offline(self) -> None:
        """The log directory failed: nothing can be read or written here."""
        self._lead_no_more(Role.OFFLINE)

    def _lead_no_more(self, role: Role) -> None:
        self.role = role
        if self.led is not None:
            self._last_proposed = self.led.proposed
            self.led = None
            self.log.producers.verifications.clear()
            self.tenures_over += 1
        self._surroundings.wakeups.mark(self)
        self._tell_role()

    def _tell_role(self) -> None:
        if self.role_changed is not None:
            self.role_changed(self)

    def step_down(self, state: LeaderAndIsr) -> None:
        """The state znode says that this leader's epoch is over; the controller is about to say who leads."""
        leader_epoch = max(state.leader_epoch, self.leadership.leader_epoch)
        self.leadership = self.leadership._replace(leader=state.leader, leader_epoch=leader_epoch)
        self.stop()

    def told_again(self, leadership: Leadership) -> None:
        """What the controller says within the leader epoch that this broker is in already.

        What it says of the in-sync set counts only where it is newer than what the leader has written itself.
        """
        known, led = self.leadership, self.led
        if leadership.partition_epoch <= known.partition_epoch:
            leadership = leadership._replace(
                isr=known.isr, eligible=known.eligible, partition_epoch=known.partition_epoch
            )
        elif led is not None:
            # The state znode has moved on: whatever was being written is written in there, or never will be.
            led.proposed = None
        if leadership != known:
            self.leadership = leadership
            if led is not None:
                led.state_changed()

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Whether this broker may answer as the leader (KIP-320).

        :param current_leader_epoch: the epoch the client knows; -1 is not checked.
        :raise KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if self.role is not Role.LEADER:
            raise self._not_here()
        if current_leader_epoch != NO_EPOCH:
            self._check_epoch(current_leader_epoch)

    def check_replica(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Whether a consumer may read here, from the leader or a follower (KIP-392).

        :raise KafkaError: as ``check_leader``.
        """
        if self.role is not Role.LEADER and self.role is not Role.FOLLOWER:
            raise self._not_here()
        if current_leader_epoch != NO_EPOCH:
            self._check_epoch(current_leader_epoch)

    def _check_epoch(self, asked: int) -> None:
        own = self.leadership.leader_epoch
        if not fencing.is_of_leader_epoch(asked, own):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if asked < own else ErrorCode.UNKNOWN_LEADER_EPOCH)

    # --- data --------------------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: Buffer, *, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> None:
        """Take over what the leader answered to a fetch from this log's end.

        :param records: whole batches; a last one that is cut short is left out; may be empty.
        :param leader_high_watermark: this one's follows it, as far as the log goes, and never goes back: what was
            committed stays so.
        :param leader_log_start_offset: this log starts no earlier.
        :raise KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (a batch starts below the log's end),
            KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (this broker does not follow); nothing has changed.
        """
        if self.role is not Role.FOLLOWER:
            raise self._not_here()
        log = self.log
        if len(records):
            taken = log.append_as_follower(records, now_ms=now_ms, leader_epoch=self.leadership.leader_epoch)
            if not taken.size:
                # Asked again at once, the leader would send it again at once.
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {log.log_end_offset}")
        end_offset = log.log_end_offset
        if leader_log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(leader_log_start_offset, end_offset))
        new = min(max(leader_high_watermark, log.log_start_offset), end_offset)
        if new > self.high_watermark:
            self.high_watermark = new
            if self.waiting:
                self._surroundings.wakeups.mark(self)

    def delete_records(self, offset: int) -> int:
        """Move the log's start; -1 is the high watermark.

        :return: the offset below which everything is to go.
        :raise KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark.
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
        if self.waiting:
            self._surroundings.wakeups.mark(self)  # the followers' logs are to start there too
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
        """A follower has asked for an offset within this log: it has everything before it, as safely as the topic asks.

        The caller has seen that it is in this leader epoch, and that its history agrees.

        :param broker_epoch: of its registration, as its fetch says; -1 where it does not.
        :raise KafkaError: UNKNOWN_LEADER_EPOCH, it is not among the replicas that this leader knows;
            NOT_LEADER_OR_FOLLOWER, a later incarnation of that broker has fetched already (KIP-903).
        """
        if self.led is None:
            raise self._not_here()
        self.led.record_fetch(replica_id, broker_epoch, fetch_offset, log_start_offset, now_s)

    def was_sent(self, replica_id: int, offset: int) -> bool:
        """Note that a follower is sent records from an offset on; whether it was before.

        Then it may not have been able to take them.
        """
        progress = self.led.followers.get(replica_id) if self.led is not None else None
        if progress is None:
            return False
        again = progress.sent_offset == offset
        progress.sent_offset = offset
        return again

    def known_end_offset(self, replica_id: int) -> int | None:
        """Up to where a follower has everything; None where it has not fetched in this leader epoch."""
        return self.led.known_end_offset(replica_id) if self.led is not None else None

    @property
    def epoch_start_offset(self) -> int:
        """Where the log ended when this broker began to lead; where it ends, while another leads."""
        return self.led.epoch_start_offset if self.led is not None else self.log.log_end_offset

    @property
    def low_watermark(self) -> int:
        """The lowest start of the logs of all in-sync replicas: below it nothing is left anywhere (KIP-107)."""
        return self.led.low_watermark if self.led is not None else self.log.log_start_offset

    # --- what changed ------------------------------------------------------------------------------------------------

    def end_moved(self) -> None:
        """More of the log counts now, by a sync or by the topic's settings."""
        if self.led is not None:
            self.led.advance()
        self._surroundings.wakeups.mark(self)

    def settings_changed(self, min_insync_replicas: int) -> None:
        """The topic's settings are others now; the log has them already."""
        self.min_insync_replicas = min_insync_replicas
        if self.led is not None:
            self.led.state_changed()
        self._surroundings.wakeups.mark(self)
