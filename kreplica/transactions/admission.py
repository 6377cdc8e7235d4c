"""Who wants to write in a transaction waits here until its partition is found in it, or added to it (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from twisted.logger import Logger

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication import Partition
from kreplica.storage.producers.transaction_verification import Verification
from kreplica.transactions.verification import Answered, Codes, Question

log = Logger()

WAITING_MAX = 20_000
"""So many may wait, of all partitions and producers; further ones are told to come again."""

Admitted = Callable[[ErrorCode], None]


class Asks(Protocol):
    """A ``Verifier``."""

    def ask(self, question: Question, answered: Answered) -> None: ...


class Producer(NamedTuple):
    """Who writes."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class _Place(NamedTuple):
    """Where those stand in line that write to one partition in one transaction."""

    key: TopicPartition
    producer_id: int
    producer_epoch: int


class _Line:
    """Those who wait for one answer, in the order in which they came."""

    __slots__ = ("partition", "verification", "waiting")

    def __init__(self, partition: Partition, verification: Verification) -> None:
        self.partition = partition
        self.verification = verification
        self.waiting: list[Admitted] = []


class Admission:
    """One for a broker.

    :param is_enabled: ``transaction.partition.verification.enable`` as it is now.
    """

    def __init__(self, verifier: Asks, is_enabled: Callable[[], bool]) -> None:
        self._verifier = verifier
        self._is_enabled = is_enabled
        self._lines: dict[_Place, _Line] = {}
        self._count = 0

    def admit(self, producer: Producer, wanted: Iterable[tuple[Partition, Admitted]], *, adds: bool) -> None:
        """Call back where a producer may write to partitions: at once, or when its coordinator has answered.

        Nobody overtakes whoever wants to write to the same partition in the same transaction and came before: a
        producer's batches have to stay in order.

        :param wanted: partitions that this broker leads, each with its callback.  It is called exactly once, and has
            to write before it returns: NONE, it may; else what ``Verifier.ask`` says.
        :param adds: the partition is to be added; else it has to be in the transaction already.
        """
        asked: list[TopicPartition] = []
        for partition, admitted in wanted:
            if not self._lines and self._is_open(partition, producer, adds):
                admitted(ErrorCode.NONE)  # as for nearly all: nobody waits, and the transaction is open
                continue
            place = _Place(partition.topic_partition, producer.producer_id, producer.producer_epoch)
            line = self._lines.get(place)
            if line is None and self._is_open(partition, producer, adds):
                admitted(ErrorCode.NONE)
            elif self._count >= WAITING_MAX:
                admitted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                if line is None:
                    line = self._lines[place] = _Line(partition, _begin(partition, producer, adds))
                    asked.append(place.key)
                line.waiting.append(admitted)
                self._count += 1
        if asked:
            question = Question(*producer, tuple(asked), adds)
            self._verifier.ask(question, lambda codes: self._answered(question, codes))

    def _is_open(self, partition: Partition, producer: Producer, adds: bool) -> bool:
        if partition.log.producers.is_in_transaction(producer.producer_id, producer.producer_epoch):
            return True
        if adds or self._is_enabled():
            return False
        _begin(partition, producer, adds).is_verified = True
        return True

    def _answered(self, question: Question, codes: Codes) -> None:
        for key in question.keys:
            line = self._lines.pop(_Place(key, question.producer_id, question.producer_epoch))
            code = codes[key]
            if code is ErrorCode.NONE:
                line.verification.is_verified = True
            else:
                line.partition.log.producers.verifications.give_up(question.producer_id, line.verification)
            self._count -= len(line.waiting)
            for admitted in line.waiting:
                try:
                    admitted(code)
                except Exception:
                    log.failure("what waited for {partition!r} failed", partition=line.partition)


def _begin(partition: Partition, producer: Producer, adds: bool) -> Verification:
    verifications = partition.log.producers.verifications
    return verifications.begin(producer.producer_id, producer.producer_epoch, starts_at_zero=adds)
