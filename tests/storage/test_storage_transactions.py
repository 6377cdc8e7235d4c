"""Conditions for transactions to start in a log, markers that end them, and the state that remains (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_world import batch, flush, idempotent, marker, open_log

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage import Log, Origin
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.retention import delete_expired
from kreplica.wire.batches import parse_header

PRODUCER = 7


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "t-0")


def write(log: Log, sequence: int, *, epoch: int = 0, producer_id: int = PRODUCER) -> int:
    """Append a client's batch in a transaction with a leader's validation; return its offset."""
    records = idempotent(sequence, epoch=epoch, producer_id=producer_id, transactional=True)
    log.producers.check_transaction(parse_header(records))
    return append_as_leader(log, records, 0, now_ms=1).base_offset


def end(log: Log, *, committed: bool = True, epoch: int = 0, coordinator_epoch: int = 0, grows: bool = False) -> None:
    log.producers.check_end(PRODUCER, epoch, bumps_epoch=grows)
    records = marker(PRODUCER, committed=committed, epoch=epoch, coordinator_epoch=coordinator_epoch)
    append_as_leader(log, records, 0, now_ms=1, origin=Origin.COORDINATOR)
    log.producers.verifications.marker_written(PRODUCER, epoch, bumps_epoch=grows)


def verify(log: Log, *, epoch: int = 0, starts_at_zero: bool = False) -> None:
    """Confirm, as the coordinator does, that the partition is in the transaction."""
    verification = log.producers.verifications.begin(PRODUCER, epoch, starts_at_zero=starts_at_zero)
    verification.is_verified = True


def code_of(write_or_end: object, *arguments: object, **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        write_or_end(*arguments, **options)  # type: ignore[operator]
    return caught.value.code


class TestStarting:
    def test_unverified_transaction_is_refused(self, log: Log) -> None:
        """A batch for a transaction that the coordinator does not know would open a transaction that never ends."""
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE
        verification = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE, "the verification is pending"
        verification.is_verified = True
        assert write(log, 0) == 0
        assert write(log, 1) == 1, "an open transaction needs no verification"
        assert len(log.producers.verifications) == 0

    def test_marker_revokes_earlier_verifications(self, log: Log) -> None:
        """A batch that was verified before the transaction's end arrived is too late."""
        verification = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        end(log)
        verification.is_verified = True
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE
        verify(log)
        end(log)
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE

    def test_marker_keeps_the_verification_of_the_next_transaction(self, log: Log) -> None:
        """If epochs are bumped, the marker has the next epoch, which may already have been verified."""
        verify(log)
        write(log, 0)
        verification = log.producers.verifications.begin(PRODUCER, 1, starts_at_zero=True)
        end(log, epoch=1, grows=True)
        verification.is_verified = True
        assert write(log, 0, epoch=1) == 2
        end(log, epoch=2, grows=True)
        assert code_of(write, log, 1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_each_transaction_is_verified(self, log: Log) -> None:
        """A late batch of an ended transaction does not open the next one."""
        verify(log)
        write(log, 0)
        end(log)
        assert code_of(write, log, 1) is ErrorCode.INVALID_TXN_STATE
        verify(log)
        assert write(log, 1) == 2

    def test_verification_applies_to_one_epoch(self, log: Log) -> None:
        """A verification of a producer that was fenced later does not apply to its successor, and vice versa."""
        verify(log, epoch=1)
        assert code_of(write, log, 0, epoch=0) is ErrorCode.INVALID_TXN_STATE
        assert code_of(write, log, 0, epoch=2) is ErrorCode.INVALID_TXN_STATE
        old = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        old.is_verified = True
        assert code_of(write, log, 0, epoch=0) is ErrorCode.INVALID_TXN_STATE
        assert write(log, 0, epoch=1) == 0

    def test_old_epoch_has_its_own_error(self, log: Log) -> None:
        """A fenced producer gets a fencing error, not an error that its transaction has ended."""
        verify(log, epoch=3)
        write(log, 0, epoch=3)
        assert code_of(write, log, 0, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_abandoned_verification_is_ignored(self, log: Log) -> None:
        """If the coordinator rejects it or is silent, the next batch is verified; newer verifications are kept."""
        old = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        new = log.producers.verifications.begin(PRODUCER, 1, starts_at_zero=False)
        log.producers.verifications.remove_failed(PRODUCER, old)
        assert log.producers.verifications.get(PRODUCER) is new
        log.producers.verifications.remove_failed(PRODUCER, new)
        assert len(log.producers.verifications) == 0

    def test_truncation_revokes_verifications(self, log: Log) -> None:
        """Markers may have been truncated, so every transaction is verified again."""
        append_as_leader(log, batch("a"), 0, now_ms=1)
        append_as_leader(log, batch("b"), 0, now_ms=1)
        verify(log)
        log.truncate_to(1)
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE

    def test_growing_epochs_start_at_sequence_0(self, log: Log) -> None:
        """With a new epoch for each transaction, a first sequence number above 0 means that batches are missing."""
        verify(log, epoch=4, starts_at_zero=True)
        assert code_of(write, log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert write(log, 0, epoch=4) == 0
        assert write(log, 1, epoch=4) == 1

    def test_constant_epochs_start_at_any_sequence(self, log: Log) -> None:
        """The state of a producer with a constant epoch may have expired (KIP-360)."""
        verify(log)
        assert write(log, 30) == 0


class TestEnding:
    def test_next_epoch_starts_at_sequence_0(self, log: Log) -> None:
        """The marker has the next transaction's epoch; from then on, the old epoch is rejected."""
        verify(log)
        write(log, 0)
        end(log, epoch=1, grows=True)
        entry = log.producers.get(PRODUCER)
        assert entry is not None
        assert (entry.epoch, entry.last_sequence, entry.transaction_first_offset) == (1, -1, -1)
        assert code_of(write, log, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
        verify(log, epoch=1, starts_at_zero=True)
        assert code_of(write, log, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert write(log, 0, epoch=1) == 2

    def test_repeated_marker_does_not_end_the_next_transaction(self, log: Log) -> None:
        """A delayed marker has the epoch of the next, open transaction, and is rejected."""
        verify(log)
        write(log, 0)
        end(log, epoch=1, grows=True)
        end(log, epoch=1, grows=True)  # a retry, before any other write
        verify(log, epoch=1)
        write(log, 0, epoch=1)
        assert code_of(end, log, epoch=1, grows=True) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.producers.is_in_transaction(PRODUCER, 1)
        end(log, epoch=2, grows=True)
        assert not log.producers.is_in_transaction(PRODUCER, 1)

    def test_marker_of_a_constant_epoch(self, log: Log) -> None:
        """The marker of an older producer has the epoch of its records, and sequence numbers continue after it."""
        verify(log)
        write(log, 0)
        end(log, epoch=0)
        verify(log)
        assert write(log, 1) == 2
        assert code_of(end, log, epoch=-1) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_replaced_coordinator_ends_nothing(self, log: Log) -> None:
        """The new coordinator may have decided differently."""
        verify(log)
        write(log, 0)
        end(log, coordinator_epoch=5)
        verify(log)
        write(log, 1)
        assert code_of(end, log, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        end(log, coordinator_epoch=5)

    def test_marker_without_records_is_accepted(self, log: Log) -> None:
        """A marker for a producer without records in this log fences the producer's late batches."""
        end(log, epoch=3, grows=True)
        assert code_of(write, log, 0, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


class TestRemainingState:
    def test_open_transactions_do_not_expire(self, tmp_path: Path) -> None:
        """The state of a producer with a long transaction is kept; the state of other producers expires."""
        log = open_log(tmp_path / "t-0", producer_expiration_ms=100)
        verify(log)
        write(log, 0)
        delete_expired(log, 10**9, 0)
        assert log.producers.is_in_transaction(PRODUCER, 0)
        end(log)
        delete_expired(log, 10**9, 2)
        assert log.producers.get(PRODUCER) is None

    @pytest.mark.parametrize("clean", [True, False])
    def test_restart_restores_transactions(self, tmp_path: Path, clean: bool) -> None:
        """Open transactions and the epochs of markers are restored, from files or from the batches."""
        log = open_log(tmp_path / "t-0")
        verify(log)
        write(log, 0)
        end(log, committed=False, epoch=1, coordinator_epoch=5, grows=True)
        verify(log, epoch=1)
        write(log, 0, epoch=1)
        if clean:
            log.close()
        else:
            flush(log)
            log.segments.release()
        log = open_log(tmp_path / "t-0", clean_shutdown=clean, recovery_point=3 if clean else 0)
        assert log.producers.is_in_transaction(PRODUCER, 1)
        assert code_of(end, log, epoch=1, grows=True) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert code_of(end, log, epoch=2, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.last_stable_offset(3) == 2
        assert [each.first_offset for each in log.segments.aborted_transactions(0, 3)] == [0]
        assert write(log, 1, epoch=1) == 3

    def test_truncated_marker_reopens_its_transaction(self, log: Log) -> None:
        """A follower that loses the end of its log waits for the marker again, and forgets that it was aborted."""
        verify(log)
        write(log, 0)
        end(log, committed=False)
        assert len(log.segments.aborted_transactions(0, 2)) == 1
        log.truncate_to(1)
        assert log.producers.is_in_transaction(PRODUCER, 0)
        assert log.last_stable_offset(1) == 0
        assert log.segments.aborted_transactions(0, 1) == []
        end(log, committed=True)
        assert (log.last_stable_offset(2), log.segments.aborted_transactions(0, 2)) == (2, [])

    def test_last_stable_offset_is_not_below_the_log_start(self, log: Log) -> None:
        """The start of an open transaction may be deleted, after which it can no longer be read."""
        verify(log)
        for sequence in range(3):
            write(log, sequence)
        log.advance_log_start_offset(2)
        assert log.last_stable_offset(3) == 2
