"""What clients did and were told, as values.

Every record that is sent in a run has a value of its own: by it a record is known again wherever it is read.  Times are
seconds on one clock that all clients share.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = Hashable
"""Whatever names a partition, such as a ``TopicPartition``; one that is deleted and made again needs another name."""

Value: TypeAlias = Hashable
"""What a record is known by: its value, or a part of that (a number, a digest)."""

NO_OFFSET = -1
"""As an offset: the client was not told where."""


class Outcome(Enum):
    """How a send ended; ``FAILED`` only where the records are surely in no log."""

    OK = "acknowledged"
    FAILED = "refused"
    UNKNOWN = "unknown"


class TransactionState(Enum):
    """How far a transaction came; ``UNKNOWN``: its commit was asked for, and nothing certain was answered."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Send(NamedTuple):
    """Records that one producer sent to one partition as one batch.

    :param values: in their order; acknowledged, they stand at consecutive offsets.
    :param outcome: of all attempts together: a retry that goes on is no end.
    :param base_offset: of the first value; ``NO_OFFSET`` where the producer was not told.
    :param transaction: the ``name`` of the one that they belong to.
    """

    producer: str
    partition: Partition
    values: Sequence[Value]
    sent_s: float
    outcome: Outcome = Outcome.UNKNOWN
    base_offset: int = NO_OFFSET
    answered_s: float = inf
    transaction: Hashable = None


class Poll(NamedTuple):
    """What one poll gave a consumer of one partition.

    :param records: (offset, value) of each, in the order in which they were given.
    :param read_committed: the isolation level; without it, records of open and aborted transactions may be among them.
    """

    consumer: str
    partition: Partition
    records: Sequence[tuple[int, Value]]
    at_s: float
    read_committed: bool = True


class Seek(NamedTuple):
    """A consumer's position was set: the next record that it is given is the first one from there on.

    :param offset: -1 where nobody can tell.
    """

    consumer: str
    partition: Partition
    offset: int
    at_s: float


class Assign(NamedTuple):
    """From now on a consumer reads these partitions; of those that it did not have before its position is not known."""

    consumer: str
    partitions: Sequence[Partition]
    at_s: float


class Transaction(NamedTuple):
    """One transaction, under a name that no other has.

    :param ending_s: when its commit or its abort was asked for; infinite while neither was.
    """

    name: Hashable
    producer: str
    began_s: float
    state: TransactionState = TransactionState.OPEN
    ending_s: float = inf


class ClientHistory:
    """Grows while clients run; what is in it stays, but for sends and transactions, which end once.

    :ivar sends: of each producer in the order in which it sent.
    :ivar reads: of each consumer in the order in which it happened to it.
    :ivar transactions: by name.
    """

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.reads: list[Poll | Seek | Assign] = []
        self.transactions: dict[Hashable, Transaction] = {}

    # --- producers ---

    def sending(
        self, producer: str, partition: Partition, values: Sequence[Value], at_s: float, transaction: Hashable = None
    ) -> int:
        """A producer sends a batch; until more is known its outcome is not.

        :return: by which ``acknowledged`` and ``refused`` know it.
        """
        self.sends.append(Send(producer, partition, values, at_s, transaction=transaction))
        return len(self.sends) - 1

    def acknowledged(self, number: int, base_offset: int, at_s: float) -> None:
        """The producer was told that the batch is in the log."""
        send = self.sends[number]
        self.sends[number] = send._replace(outcome=Outcome.OK, base_offset=base_offset, answered_s=at_s)

    def refused(self, number: int, at_s: float) -> None:
        """The producer was told that the batch is not in the log and will never be, and gave up."""
        self.sends[number] = self.sends[number]._replace(outcome=Outcome.FAILED, answered_s=at_s)

    # --- transactions ---

    def began(self, name: Hashable, producer: str, at_s: float) -> None:
        """A producer began a transaction."""
        self.transactions[name] = Transaction(name, producer, at_s)

    def ending(self, name: Hashable, at_s: float, *, commit: bool) -> None:
        """The end of a transaction is asked for.  Asked to abort, it cannot become committed."""
        state = TransactionState.UNKNOWN if commit else TransactionState.ABORTED
        self.transactions[name] = self.transactions[name]._replace(state=state, ending_s=at_s)

    def ended(self, name: Hashable, *, committed: bool) -> None:
        """A transaction whose end was asked for is surely committed, or surely not."""
        state = TransactionState.COMMITTED if committed else TransactionState.ABORTED
        self.transactions[name] = self.transactions[name]._replace(state=state)

    # --- consumers ---

    def polled(
        self,
        consumer: str,
        partition: Partition,
        records: Sequence[tuple[int, Value]],
        at_s: float,
        *,
        read_committed: bool = True,
    ) -> None:
        """A consumer was given records."""
        self.reads.append(Poll(consumer, partition, records, at_s, read_committed))

    def sought(self, consumer: str, partition: Partition, offset: int, at_s: float) -> None:
        """A consumer's position was set."""
        self.reads.append(Seek(consumer, partition, offset, at_s))

    def assigned(self, consumer: str, partitions: Sequence[Partition], at_s: float) -> None:
        """A consumer was assigned partitions, in place of those it had."""
        self.reads.append(Assign(consumer, partitions, at_s))

    # --- where a log was cut by right ---

    def forget_from(self, partition: Partition, offset: int) -> None:
        """The partition's log was cut there, as its settings allow: what was told of later offsets holds no more.

        A consumer that was beyond may go on where it was, once the log is as long again.
        """
        self.sends = [_cut_send(send, offset) if send.partition == partition else send for send in self.sends]
        reads, self.reads = self.reads, []
        for read in reads:
            if isinstance(read, Poll) and read.partition == partition and _reaches(read, offset):
                self.reads.append(_cut_poll(read, offset))
                self.reads.append(Seek(read.consumer, partition, NO_OFFSET, read.at_s))
            else:
                self.reads.append(read)


def _cut_send(send: Send, offset: int) -> Send:
    if send.base_offset + len(send.values) <= offset:
        return send
    return send._replace(outcome=Outcome.UNKNOWN, base_offset=NO_OFFSET)


def _reaches(poll: Poll, offset: int) -> bool:
    return bool(poll.records) and poll.records[-1][0] >= offset


def _cut_poll(poll: Poll, offset: int) -> Poll:
    return poll._replace(records=[record for record in poll.records if record[0] < offset])
