"""Delays transactional writes until their partitions are verified or added to the transaction (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from twisted.logger import Logger

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication import Partition
from kreplica.storage.producers.transaction_verification import Verification
from kreplica.transactions.verification import Codes, OnVerified, VerificationRequest

log = Logger()

WAITING_MAX = 20_000
"""Maximum number of waiting writes per broker; further writes are rejected with a retriable error."""

OnAdmitted = Callable[[ErrorCode], None]


class PartitionVerifier(Protocol):
    """The part of ``Verifier`` that ``Admission`` uses."""

    def verify(self, request: VerificationRequest, on_verified: OnVerified) -> None: ...


class Producer(NamedTuple):
    """A transactional producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class _QueueKey(NamedTuple):
    """Key of a queue: writes to one partition in one transaction."""

    key: TopicPartition
    producer_id: int
    producer_epoch: int


class _Queue:
    """Writes that wait for the same verification, in order of arrival."""

    __slots__ = ("partition", "verification", "waiting")

    def __init__(self, partition: Partition, verification: Verification) -> None:
        self.partition = partition
        self.verification = verification
        self.waiting: list[OnAdmitted] = []


class Admission:
    """Admits transactional writes on one broker.

    :param is_enabled: returns the current value of ``transaction.partition.verification.enable``.
    """

    def __init__(self, verifier: PartitionVerifier, is_enabled: Callable[[], bool]) -> None:
        self._verifier = verifier
        self._is_enabled = is_enabled
        self._queues: dict[_QueueKey, _Queue] = {}
        self._count = 0

    def admit(self, producer: Producer, wanted: Iterable[tuple[Partition, OnAdmitted]], *, adds: bool) -> None:
        """Call back when a producer may write to partitions: immediately, or after its coordinator's response.

        Writes to the same partition in the same transaction keep their order, because a producer's batches have
        sequence numbers.

        :param wanted: partitions led by this broker, with callbacks. Each callback is called exactly once and must
            write before it returns; its argument is NONE, or an error as described in ``Verifier.verify``.
        :param adds: True to add the partitions to the transaction; otherwise they must already be in it.
        """
        keys: list[TopicPartition] = []
        for partition, on_admitted in wanted:
            if not self._queues and self._is_open(partition, producer, adds):
                on_admitted(ErrorCode.NONE)  # the common case: no write waits, and the transaction is open
                continue
            queue_key = _QueueKey(partition.topic_partition, producer.producer_id, producer.producer_epoch)
            queue = self._queues.get(queue_key)
            if queue is None and self._is_open(partition, producer, adds):
                on_admitted(ErrorCode.NONE)
            elif self._count >= WAITING_MAX:
                on_admitted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                if queue is None:
                    queue = self._queues[queue_key] = _Queue(partition, _start_verification(partition, producer, adds))
                    keys.append(queue_key.key)
                queue.waiting.append(on_admitted)
                self._count += 1
        if keys:
            request = VerificationRequest(*producer, tuple(keys), adds)
            self._verifier.verify(request, lambda codes: self._handle_results(request, codes))

    def _is_open(self, partition: Partition, producer: Producer, adds: bool) -> bool:
        if partition.log.producers.is_in_transaction(producer.producer_id, producer.producer_epoch):
            return True
        if adds or self._is_enabled():
            return False
        _start_verification(partition, producer, adds).is_verified = True
        return True

    def _handle_results(self, request: VerificationRequest, codes: Codes) -> None:
        for key in request.keys:
            queue = self._queues.pop(_QueueKey(key, request.producer_id, request.producer_epoch))
            code = codes[key]
            if code is ErrorCode.NONE:
                queue.verification.is_verified = True
            else:
                queue.partition.log.producers.verifications.remove_failed(request.producer_id, queue.verification)
            self._count -= len(queue.waiting)
            for on_admitted in queue.waiting:
                try:
                    on_admitted(code)
                except Exception:
                    log.failure("a delayed write to {partition!r} failed", partition=queue.partition)


def _start_verification(partition: Partition, producer: Producer, adds: bool) -> Verification:
    verifications = partition.log.producers.verifications
    return verifications.begin(producer.producer_id, producer.producer_epoch, starts_at_zero=adds)
