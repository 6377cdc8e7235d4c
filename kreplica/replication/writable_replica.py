"""A replica that is written to, as long as it leads: by clients and by the coordinators of this broker."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kreplica.cluster import eligible_leaders
from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication.leader.leader_state import Led
from kreplica.replication.leadership import Leadership
from kreplica.replication.replica import Replica
from kreplica.runtime.disk import Buffer
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.log.results import AppendResult
from kreplica.storage.producers.producer_state import Origin
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker, build_end_marker


class Role(Enum):
    """STOPPED: the broker was told nothing yet, or to stop.  OFFLINE: its log directory failed."""

    STOPPED = "stopped"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class WritableReplica(Replica):
    """What a partition is as long as it is written to; who leads and who follows is ``Partition``'s business.

    :ivar led: what belongs to leading it; None where this broker does not.
    :ivar min_insync_replicas: of the topic.
    """

    __slots__ = ("leadership", "led", "min_insync_replicas", "role")

    leadership: Leadership
    led: Led | None
    min_insync_replicas: int
    role: Role

    @property
    def in_sync_required(self) -> int:
        """How many replicas must be in sync for ``acks=all`` to be taken and for anything to be committed."""
        return eligible_leaders.required(self.min_insync_replicas, len(self.leadership.replicas))

    def append(
        self, records: Buffer, now_ms: int, *, all_in_sync: bool, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Append one batch of a client as the leader.

        :param all_in_sync: whether the client wants all in-sync replicas to have it (``acks=all``).
        :raise KafkaError: whatever is wrong with the batch or with the role; nothing was appended.
        """
        try:
            led = self._to_append(all_in_sync=all_in_sync)
        except KafkaError as error:
            self.log.producers.note_refusal(records, error, now_ms)
            raise
        result = self.log.append_as_leader(records, self.leadership.leader_epoch, now_ms=now_ms, origin=origin)
        led.appended()
        return result

    def append_in_transaction(
        self,
        records: Buffer,
        header: BatchHeader,
        now_ms: int,
        *,
        all_in_sync: bool,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Append one batch of a client's transaction: of one that is open here, or that was verified (KIP-890).

        :param header: the batch's.
        :raise KafkaError: as ``append``; INVALID_TXN_STATE, the transaction may not begin here.
        """
        if self.led is not None:
            try:
                self.log.producers.check_transaction(header)
            except KafkaError as error:
                self.log.producers.note_refusal(records, error, now_ms)
                raise
        return self.append(records, now_ms, all_in_sync=all_in_sync, origin=origin)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int, *, epoch_grows: bool
    ) -> AppendResult:
        """Append the end of a producer's transaction, for all in-sync replicas; of one that is not open here too.

        :param epoch_grows: with each transaction, and the marker has the next one's (KIP-890).
        :raise KafkaError: as ``append``; INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED, the marker is late.
        """
        producers = self.log.producers
        if self.led is not None:
            producers.check_end(producer_id, producer_epoch, epoch_grows=epoch_grows)
        result = self.append_own(build_end_marker(marker, producer_id, producer_epoch, now_ms), now_ms)
        producers.verifications.marker_written(producer_id, producer_epoch, epoch_grows=epoch_grows)
        return result

    def append_own(self, records: Buffer, now_ms: int, *, in_transaction: bool = False) -> AppendResult:
        """Append one batch of a coordinator on this broker, for all in-sync replicas; else as ``append``.

        It may be a transaction's end marker, or have a producer id without a sequence.

        :param in_transaction: the batch belongs to a client's transaction, which is open here or was verified: else
            INVALID_TXN_STATE (KIP-890).
        """
        header = header_at(records, 0) if in_transaction else None
        if header is not None and self.led is not None:
            self.log.producers.check_transaction(header)
        return self.append(records, now_ms, all_in_sync=True, origin=Origin.COORDINATOR)

    def append_all(
        self, batches: Sequence[Buffer], now_ms: int, *, all_in_sync: bool
    ) -> Sequence[AppendResult | KafkaError]:
        """As ``append`` one after the other, with fewer system calls.

        :return: of each, in their order, where it is, or why it is not there.
        """
        try:
            led = self._to_append(all_in_sync=all_in_sync)
        except KafkaError as error:
            for records in batches:
                self.log.producers.note_refusal(records, error, now_ms)
            return [error] * len(batches)
        outcomes = self.log.append_all_as_leader(batches, self.leadership.leader_epoch, now_ms=now_ms)
        led.appended()
        return outcomes

    def _to_append(self, *, all_in_sync: bool) -> Led:
        """:raise KafkaError: nothing may be appended here now."""
        led = self.led
        if led is None:
            raise self._not_here()
        leadership = self.leadership
        if leadership.read_only:
            # Every client (librdkafka, Java, kafka-python, aiokafka) sends this again after a while, and asks for no
            # metadata because of it, as it would where it is told that the leader is another: the partition is still
            # in there.  Soon it is not, and then they are told that there is no such partition.
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.topic_partition} is being removed")
        if not led.has_lease:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another may lead {self.topic_partition}: ZooKeeper is out of reach"
            )
        if all_in_sync and len(leadership.isr) < self.in_sync_required:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leadership.isr)} replicas of {self.topic_partition} are in sync, "
                f"{self.in_sync_required} are required",
            )
        return led

    def _not_here(self) -> KafkaError:
        if self.role is Role.OFFLINE:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {self.topic_partition} is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
