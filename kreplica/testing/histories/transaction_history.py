"""History of a topic that is written to in transactions.

A transaction is committed if its producer received a successful response, aborted if the producer requested this or
the commit was rejected, and unknown if a requested commit received no definite response.  When a newer producer has
received its producer ID, transactions of older producers whose commit was not requested yet are aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kreplica.testing.anomalies.history import TransactionState
from kreplica.testing.histories.record_history import History


class TransactionHistory(History):
    """History of one topic, filled by its clients while they run.

    :ivar committed_count: number of transactions whose commit was confirmed.
    :ivar aborted_count: number of transactions that are certainly aborted.
    """

    def __init__(self, partitions: int = 1, clock: Callable[[], float] = float) -> None:
        super().__init__(partitions, clock)
        self.committed_count = self.aborted_count = 0
        self._count = 0
        self._open: dict[str, str] = {}

    def begin(self, transactional_id: str) -> str:
        """Record the start of a transaction.

        :return: the transaction's name in this history.
        """
        self._count += 1
        name = f"{transactional_id}/{self._count}"
        self.observations.began(name, transactional_id, self._clock())
        self._open[name] = transactional_id
        return name

    def sending_in(self, transaction: str, partition: int, values: Sequence[bytes]) -> int:
        """Record the first attempt to send a batch in a transaction.

        :return: the batch's number, for ``acknowledged``.
        """
        producer = self.observations.transactions[transaction].producer
        return self.observations.sending(producer, partition, values, self._clock(), transaction)

    def ending(self, transaction: str, *, commit: bool) -> None:
        """Record a producer's request to commit or abort a transaction."""
        if self._open.pop(transaction, None) is None:
            return  # a newer producer has fenced the transaction, which can no longer be committed
        self.observations.ending(transaction, self._clock(), commit=commit)
        self.aborted_count += not commit

    def ended(self, transaction: str, *, committed: bool) -> None:
        """Record the response to a producer's commit or abort request."""
        if committed and self.observations.transactions[transaction].state is TransactionState.ABORTED:
            self.contradictions.append(f"{transaction} was fenced, but its commit was confirmed")
        self._open.pop(transaction, None)
        self.observations.ended(transaction, committed=committed)
        if committed:
            self.committed_count += 1
        else:
            self.aborted_count += 1

    def fenced(self, transactional_id: str) -> None:
        """Record a new producer ID or epoch for a transactional ID, which aborts its open transactions."""
        for name in [name for name, owner in self._open.items() if owner == transactional_id]:
            del self._open[name]
            self.observations.ended(name, committed=False)
            self.aborted_count += 1
