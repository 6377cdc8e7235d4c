"""What clients of a topic were told that is written to in transactions, and what came of those.

A transaction is committed when its producer was told so, aborted when it asked for that or was told that it could not
commit; unknown when its commit was asked for and nothing certain was answered.  Once a newer incarnation has its
identity, whatever an older one had not asked to commit by then is aborted, and remains so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kreplica.testing.anomalies.history import TransactionState
from kreplica.testing.histories.record_history import History
from kreplica.wire.records import Record


class TransactionHistory(History):
    """Filled by clients while they run; one topic.

    :ivar committed_count: transactions whose producers were told that they are committed.
    :ivar aborted_count: those that are surely aborted.
    """

    def __init__(self, partitions: int = 1, clock: Callable[[], float] = float) -> None:
        super().__init__(partitions, clock)
        self.committed_count = self.aborted_count = 0
        self._count = 0
        self._open: dict[str, str] = {}

    # --- producers ---

    def began(self, transactional_id: str) -> str:
        """A producer begins a transaction.

        :return: the name by which it is known here.
        """
        self._count += 1
        name = f"{transactional_id}/{self._count}"
        self.told.began(name, transactional_id, self._clock())
        self._open[name] = transactional_id
        return name

    def sending_in(self, transaction: str, partition: int, values: Sequence[bytes]) -> int:
        """A producer sends a batch in a transaction.

        :return: by which ``acknowledged`` knows it.
        """
        producer = self.told.transactions[transaction].producer
        return self.told.sending(producer, partition, values, self._clock(), transaction)

    def ending(self, transaction: str, *, commit: bool) -> None:
        """A producer asks for its transaction's end."""
        if self._open.pop(transaction, None) is None:
            return  # it was fenced, and cannot commit any more
        self.told.ending(transaction, self._clock(), commit=commit)
        self.aborted_count += not commit

    def ended(self, transaction: str, *, committed: bool) -> None:
        """A producer was told that its transaction is committed, or that it could not commit."""
        if committed and self.told.transactions[transaction].state is TransactionState.ABORTED:
            self.contradictions.append(f"{transaction} was fenced, and its producer was told that it is committed")
        self._open.pop(transaction, None)
        self.told.ended(transaction, committed=committed)
        if committed:
            self.committed_count += 1
        else:
            self.aborted_count += 1

    def fenced(self, transactional_id: str) -> None:
        """A producer has an identity that is newer than those of all transactions so far."""
        for name in [name for name, whose in self._open.items() if whose == transactional_id]:
            del self._open[name]
            self.told.ended(name, committed=False)
            self.aborted_count += 1

    # --- readers ---

    def given(self, partition: int, records: Sequence[Record], consumer: str, *, read_committed: bool) -> None:
        """A reader was given these."""
        if read_committed:
            self.read(partition, records, consumer)
            return
        given = [(record.offset, record.value or b"") for record in records]
        self.told.polled(consumer, partition, given, self._clock(), read_committed=False)
        for offset, value in given:
            self._note(self.seen[partition], offset, value, f"read from partition {partition}")
            self._seen_ends[partition] = max(self._seen_ends[partition], offset + 1)
