"""Requests and responses of clients.

Every record sent in a run has a unique value, which identifies it when it is read.  Times are in seconds, on one clock
for all clients.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = Hashable
"""Name of a partition, such as a ``TopicPartition``; a recreated partition needs a new name."""

Value: TypeAlias = Hashable
"""Identity of a record: its value, or a part of it such as a number or a digest."""

NO_OFFSET = -1
"""The client did not receive the offset."""


class Outcome(Enum):
    """Result of a send; ``FAILED`` only if the records are certainly not in the log."""

    OK = "acknowledged"
    FAILED = "refused"
    UNKNOWN = "unknown"


class TransactionState(Enum):
    """State of a transaction; ``UNKNOWN`` if its commit was requested, but no definite response was received."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Send(NamedTuple):
    """Records that one producer sent to one partition as one batch.

    :param values: values in order; acknowledged values have consecutive offsets.
    :param outcome: result of all attempts together; unknown while retries continue.
    :param base_offset: offset of the first value, or ``NO_OFFSET``.
    :param transaction: ``name`` of the transaction; None for a batch outside transactions.
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
    """Records of one partition that one poll returned to a consumer.

    :param records: (offset, value) pairs in the order of delivery.
    :param read_committed: false for read_uncommitted, which also returns records of open and aborted transactions.
    """

    consumer: str
    partition: Partition
    records: Sequence[tuple[int, Value]]
    at_s: float
    read_committed: bool = True


class Seek(NamedTuple):
    """A consumer set its position.

    :param offset: -1 if it is unknown.
    """

    consumer: str
    partition: Partition
    offset: int
    at_s: float


class Assign(NamedTuple):
    """A consumer's new assignment; the positions of added partitions are unknown."""

    consumer: str
    partitions: Sequence[Partition]
    at_s: float


class Transaction(NamedTuple):
    """One transaction with a unique name.

    :param ending_s: time of the commit or abort request; infinite before that.
    """

    name: Hashable
    producer: str
    started_s: float
    state: TransactionState = TransactionState.OPEN
    ending_s: float = inf


class ClientHistory:
    """Requests and responses of all clients; entries are only added, but sends and transactions get their result later.

    :ivar sends: batches, in the order in which each producer sent them.
    :ivar reads: polls, seeks and assignments, in the order of each consumer.
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
        """Record a batch that a producer sends.

        :return: the batch's number, for ``acknowledged`` and ``rejected``.
        """
        self.sends.append(Send(producer, partition, values, at_s, transaction=transaction))
        return len(self.sends) - 1

    def acknowledged(self, number: int, base_offset: int, at_s: float) -> None:
        send = self.sends[number]
        self.sends[number] = send._replace(outcome=Outcome.OK, base_offset=base_offset, answered_s=at_s)

    def rejected(self, number: int, at_s: float) -> None:
        """Record that a batch was rejected, will not be retried, and is certainly not in the log."""
        self.sends[number] = self.sends[number]._replace(outcome=Outcome.FAILED, answered_s=at_s)

    # --- transactions ---

    def began(self, name: Hashable, producer: str, at_s: float) -> None:
        self.transactions[name] = Transaction(name, producer, at_s)

    def ending(self, name: Hashable, at_s: float, *, commit: bool) -> None:
        """Record a request to commit or abort a transaction; after an abort request, it cannot be committed."""
        state = TransactionState.UNKNOWN if commit else TransactionState.ABORTED
        self.transactions[name] = self.transactions[name]._replace(state=state, ending_s=at_s)

    def ended(self, name: Hashable, *, committed: bool) -> None:
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
        self.reads.append(Poll(consumer, partition, records, at_s, read_committed))

    def sought(self, consumer: str, partition: Partition, offset: int, at_s: float) -> None:
        self.reads.append(Seek(consumer, partition, offset, at_s))

    def assigned(self, consumer: str, partitions: Sequence[Partition], at_s: float) -> None:
        """Record an assignment, which replaces the consumer's previous one."""
        self.reads.append(Assign(consumer, partitions, at_s))

    # --- truncation ---

    def forget_from(self, partition: Partition, offset: int) -> None:
        """Forget all records from the offset at which the log was truncated, which its settings allow.

        A consumer beyond that offset may keep its position until the log has grown to that length again.
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
