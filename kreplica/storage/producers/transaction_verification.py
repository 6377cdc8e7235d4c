"""Verification that a partition was added to a transaction before the transaction starts in its log (KIP-890).

A late batch of an ended transaction would open a transaction that never ends and block read_committed consumers. The
leader therefore queries the coordinator before the first batch of a transaction. An end marker that arrives in between
invalidates the response.
"""

from __future__ import annotations


class Verification:
    """Verification of one producer's transaction; invalid after an end marker of that producer.

    :ivar is_verified: the coordinator confirmed that the partition belongs to the transaction.
    :ivar starts_at_zero: its first batch has sequence number 0, because the producer epoch is new.
    """

    __slots__ = ("is_verified", "producer_epoch", "starts_at_zero")

    def __init__(self, producer_epoch: int, *, starts_at_zero: bool) -> None:
        self.producer_epoch = producer_epoch
        self.starts_at_zero = starts_at_zero
        self.is_verified = False


class Verifications:
    """Verifications of a leader's log by producer ID, until the transaction is opened or ended."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, producer_epoch: int, *, starts_at_zero: bool) -> Verification:
        """Start a verification, or return the pending one; verifications of older epochs become invalid."""
        pending = self._by_producer.get(producer_id)
        if pending is not None and pending.producer_epoch == producer_epoch:
            return pending
        verification = Verification(producer_epoch, starts_at_zero=starts_at_zero)
        if pending is None or pending.producer_epoch < producer_epoch:
            self._by_producer[producer_id] = verification
        # Otherwise the verification is not stored, and its result has no effect.
        return verification

    def get(self, producer_id: int) -> Verification | None:
        return self._by_producer.get(producer_id)

    def note_opened(self, producer_id: int) -> None:
        """Remove the verification of a transaction that was opened."""
        self._by_producer.pop(producer_id, None)

    def marker_written(self, producer_id: int, marker_epoch: int, *, bumps_epoch: bool) -> None:
        """Invalidate the verification of a producer whose transaction ended."""
        verification = self._by_producer.get(producer_id)
        if verification is not None and is_ended_by(
            marker_epoch, verification.producer_epoch, bumps_epoch=bumps_epoch
        ):
            del self._by_producer[producer_id]

    def remove_failed(self, producer_id: int, verification: Verification) -> None:
        """Remove a verification that failed."""
        if self._by_producer.get(producer_id) is verification:
            del self._by_producer[producer_id]


def may_begin(verification: Verification | None, producer_epoch: int) -> bool:
    """True if the coordinator confirmed the transaction and no end marker has arrived since."""
    return verification is not None and verification.is_verified and verification.producer_epoch == producer_epoch


def is_ended_by(marker_epoch: int, producer_epoch: int, *, bumps_epoch: bool) -> bool:
    """True if an end marker ends a transaction.

    :param producer_epoch: epoch of the transaction's records.
    :param bumps_epoch: the epoch increases with each transaction, and a marker has the next one.
    """
    return producer_epoch < marker_epoch if bumps_epoch else producer_epoch <= marker_epoch


def is_late_marker(marker_epoch: int, known_epoch: int, *, is_open: bool, bumps_epoch: bool) -> bool:
    """True if an end marker belongs to an earlier transaction than the producer's last one here.

    :param known_epoch: epoch of the producer's last batch or marker here.
    :param is_open: True if its transaction is open here.
    :param bumps_epoch: the epoch increases with each transaction (KIP-890). Its marker has the next epoch, so a marker
        with the epoch of the open transaction is a late copy of the previous transaction's marker.
    """
    return marker_epoch < known_epoch or (bumps_epoch and is_open and marker_epoch == known_epoch)
