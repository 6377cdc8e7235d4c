"""Appends to a partition that this broker leads, by clients and by its own coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kreplica.cluster import eligible_leaders
from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication.leader.leader_state import LeaderState
from kreplica.replication.leadership import Leadership
from kreplica.replication.replica import Replica
from kreplica.runtime.disk import Buffer
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.log.appending import append_all_as_leader
from kreplica.storage.log.results import AppendResult, Outcome
from kreplica.storage.producers.producer_state import Origin
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker, build_end_marker


class Role(Enum):
    """Role of a replica. STOPPED: no command received yet, or stopped by one. OFFLINE: its log directory failed."""

    STOPPED = "stopped"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class WritableReplica(Replica):
    """Append operations of a partition; role changes are in ``Partition``.

    :ivar leader_state: state of the leader role; None if this broker does not lead.
    :ivar min_insync_replicas: topic setting.
    """

    __slots__ = ("leader_state", "leadership", "min_insync_replicas", "role")

    leadership: Leadership
    leader_state: LeaderState | None
    min_insync_replicas: int
    role: Role

    @property
    def in_sync_required(self) -> int:
        """Minimum ISR size for ``acks=all`` and for the high watermark to advance."""
        return eligible_leaders.required(self.min_insync_replicas, len(self.leadership.replicas))

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
        try:
            if transaction is not None and self.leader_state is not None:
                self.log.producers.check_transaction(transaction)
            led = self._check_appendable(all_in_sync=all_in_sync)
        except KafkaError as error:
            for records in batches:
                self.log.producers.note_refusal(records, error, now_ms)
            return [error] * len(batches)
        outcomes = append_all_as_leader(self.log, batches, self.leadership.leader_epoch, now_ms=now_ms, origin=origin)
        led.appended()
        return outcomes

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int, *, epoch_grows: bool
    ) -> AppendResult:
        """Append an end-transaction marker with ``acks=all``, also if the transaction is not open here.

        :param epoch_grows: the producer epoch increases with each transaction, and the marker has the next one
            (KIP-890).
        :raise KafkaError: as ``append_own``; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the marker is
            stale.
        """
        producers = self.log.producers
        if self.leader_state is not None:
            producers.check_end(producer_id, producer_epoch, epoch_grows=epoch_grows)
        result = self.append_own(build_end_marker(marker, producer_id, producer_epoch, now_ms), now_ms)
        producers.verifications.marker_written(producer_id, producer_epoch, epoch_grows=epoch_grows)
        return result

    def append_own(self, records: Buffer, now_ms: int, *, in_transaction: bool = False) -> AppendResult:
        """Append one batch of a coordinator on this broker with ``acks=all``.

        It may be an end-transaction marker, or have a producer id without a sequence number.

        :param in_transaction: the batch belongs to a client's transaction, which must be open here or verified;
            otherwise INVALID_TXN_STATE is raised (KIP-890).
        :raise KafkaError: the batch is invalid, or this broker may not append; the log is unchanged.
        """
        header = header_at(records, 0) if in_transaction else None
        if header is not None and self.leader_state is not None:
            self.log.producers.check_transaction(header)
        (outcome,) = self.append((records,), now_ms, all_in_sync=True, origin=Origin.COORDINATOR)
        if type(outcome) is AppendResult:
            return outcome
        raise outcome

    def _check_appendable(self, *, all_in_sync: bool) -> LeaderState:
        """Return the leader state.

        :raise KafkaError: this broker may not append now.
        """
        led = self.leader_state
        if led is None:
            raise self._unavailable()
        leadership = self.leadership
        if leadership.read_only:
            # All known clients (librdkafka, Java, kafka-python, aiokafka) retry this error after a delay without a
            # metadata refresh, which would still list the partition. Once it is removed they receive
            # UNKNOWN_TOPIC_OR_PARTITION.
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.topic_partition} is being removed")
        if not led.has_lease:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"another broker may lead {self.topic_partition}: ZooKeeper is unreachable",
            )
        if all_in_sync and len(leadership.isr) < self.in_sync_required:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leadership.isr)} replicas of {self.topic_partition} are in sync, "
                f"{self.in_sync_required} are required",
            )
        return led

    def _unavailable(self) -> KafkaError:
        if self.role is Role.OFFLINE:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {self.topic_partition} is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
