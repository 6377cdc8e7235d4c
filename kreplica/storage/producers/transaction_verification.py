"""Which transactions may begin in a log: those of which the coordinator said that the partition is in them (KIP-890).

A batch that is late, of a transaction that has ended, would open one that nobody ends: readers of committed records
would wait behind it for ever.  So the leader asks the coordinator before the first batch of a transaction.  An end
marker may come between the answer and the batch: it takes back what was answered before it.
"""

from __future__ import annotations


class Verification:
    """What is asked about one producer's transaction; of no use any more once an end marker of that producer came.

    :ivar is_verified: the coordinator said that the partition is in it.
    :ivar starts_at_zero: its first batch has sequence 0, since its producer's epoch is new with it.
    """

    __slots__ = ("is_verified", "producer_epoch", "starts_at_zero")

    def __init__(self, producer_epoch: int, *, starts_at_zero: bool) -> None:
        self.producer_epoch = producer_epoch
        self.starts_at_zero = starts_at_zero
        self.is_verified = False


class Verifications:
    """Those of one log that is led, by producer id: from the question until the transaction is open, or over."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, producer_epoch: int, *, starts_at_zero: bool) -> Verification:
        """Note that the coordinator is asked from now on, or again; an older epoch's question counts no more."""
        known = self._by_producer.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch:
            return known
        verification = Verification(producer_epoch, starts_at_zero=starts_at_zero)
        if known is None or known.producer_epoch < producer_epoch:
            self._by_producer[producer_id] = verification
        # Else it stands nowhere: whatever is answered opens nothing.
        return verification

    def get(self, producer_id: int) -> Verification | None:
        return self._by_producer.get(producer_id)

    def opened(self, producer_id: int) -> None:
        """Its transaction is open now."""
        self._by_producer.pop(producer_id, None)

    def marker_written(self, producer_id: int, marker_epoch: int, *, epoch_grows: bool) -> None:
        """A transaction of that producer has ended; what was asked about it counts no more."""
        verification = self._by_producer.get(producer_id)
        if verification is not None and is_ended_by(
            marker_epoch, verification.producer_epoch, epoch_grows=epoch_grows
        ):
            del self._by_producer[producer_id]

    def give_up(self, producer_id: int, verification: Verification) -> None:
        """The coordinator's answer was another, or there was none."""
        if self._by_producer.get(producer_id) is verification:
            del self._by_producer[producer_id]

    def clear(self) -> None:
        """This broker leads no more."""
        self._by_producer.clear()


def may_begin(verification: Verification | None, producer_epoch: int) -> bool:
    """Whether a transaction may begin here: its coordinator said so, and no end marker has come since."""
    return verification is not None and verification.is_verified and verification.producer_epoch == producer_epoch


def is_ended_by(marker_epoch: int, producer_epoch: int, *, epoch_grows: bool) -> bool:
    """Whether an end marker says that a transaction is over.

    :param producer_epoch: of the transaction's records.
    :param epoch_grows: with each transaction, and a marker has the next one's.
    """
    return producer_epoch < marker_epoch if epoch_grows else producer_epoch <= marker_epoch


def is_late_marker(marker_epoch: int, known_epoch: int, *, is_open: bool, epoch_grows: bool) -> bool:
    """Whether an end marker belongs to an earlier transaction than the producer's last one here.

    :param known_epoch: of the producer's last batch or marker here.
    :param is_open: whether its transaction is open here.
    :param epoch_grows: with each transaction, and its marker has the next one's (KIP-890): a marker that has the open
        one's epoch is that of the transaction before, sent twice.
    """
    return marker_epoch < known_epoch or (epoch_grows and is_open and marker_epoch == known_epoch)
