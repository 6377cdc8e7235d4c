"""Which transactions may begin in a log, which markers end them, and what stays of that (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_world import batch, idempotent, marker, open_log

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage import Log, Origin
from kreplica.wire.batches import parse_header

PRODUCER = 7


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "t-0")


def write(log: Log, sequence: int, *, epoch: int = 0, producer_id: int = PRODUCER) -> int:
    """A client's batch in a transaction, judged as a leader judges it; returns its offset."""
    records = idempotent(sequence, epoch=epoch, producer_id=producer_id, transactional=True)
    log.producers.check_transaction(parse_header(records))
    return log.append_as_leader(records, 0, now_ms=1).base_offset


def end(log: Log, *, committed: bool = True, epoch: int = 0, coordinator_epoch: int = 0, grows: bool = False) -> None:
    log.producers.check_end(PRODUCER, epoch, epoch_grows=grows)
    records = marker(PRODUCER, committed=committed, epoch=epoch, coordinator_epoch=coordinator_epoch)
    log.append_as_leader(records, 0, now_ms=1, origin=Origin.COORDINATOR)
    log.producers.verifications.marker_written(PRODUCER, epoch, epoch_grows=grows)


def verify(log: Log, *, epoch: int = 0, starts_at_zero: bool = False) -> None:
    """The coordinator says that the partition is in the transaction."""
    verification = log.producers.verifications.begin(PRODUCER, epoch, starts_at_zero=starts_at_zero)
    verification.is_verified = True


def code_of(write_or_end: object, *arguments: object, **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        write_or_end(*arguments, **options)  # type: ignore[operator]
    return caught.value.code


class TestBeginning:
    def test_no_transaction_begins_unverified(self, log: Log) -> None:
        """A batch whose transaction the coordinator does not know would open one that nobody ends."""
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE
        verification = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE, "it is asked, and not answered"
        verification.is_verified = True
        assert write(log, 0) == 0
        assert write(log, 1) == 1, "while it is open nobody needs to ask"
        assert len(log.producers.verifications) == 0

    def test_a_marker_takes_back_what_was_answered_before_it(self, log: Log) -> None:
        """A batch whose verification was answered before the transaction's end came is late all the same."""
        verification = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        end(log)
        verification.is_verified = True
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE
        verify(log)
        end(log)
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE

    def test_a_marker_leaves_the_next_transactions_verification_alone(self, log: Log) -> None:
        """Where epochs grow the marker has the next one's, which may have been asked about already."""
        verify(log)
        write(log, 0)
        verification = log.producers.verifications.begin(PRODUCER, 1, starts_at_zero=True)
        end(log, epoch=1, grows=True)
        verification.is_verified = True
        assert write(log, 0, epoch=1) == 2
        end(log, epoch=2, grows=True)
        assert code_of(write, log, 1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_after_its_end_each_transaction_is_verified_anew(self, log: Log) -> None:
        """A late batch of a transaction that has ended does not open the next one."""
        verify(log)
        write(log, 0)
        end(log)
        assert code_of(write, log, 1) is ErrorCode.INVALID_TXN_STATE
        verify(log)
        assert write(log, 1) == 2

    def test_an_answer_for_one_epoch_is_none_for_another(self, log: Log) -> None:
        """What was asked before the producer was fenced opens nothing for its successor, nor the other way round."""
        verify(log, epoch=1)
        assert code_of(write, log, 0, epoch=0) is ErrorCode.INVALID_TXN_STATE
        assert code_of(write, log, 0, epoch=2) is ErrorCode.INVALID_TXN_STATE
        old = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        old.is_verified = True
        assert code_of(write, log, 0, epoch=0) is ErrorCode.INVALID_TXN_STATE
        assert write(log, 0, epoch=1) == 0

    def test_an_old_epoch_is_told_so(self, log: Log) -> None:
        """A producer that was fenced learns that, and not that its transaction is over."""
        verify(log, epoch=3)
        write(log, 0, epoch=3)
        assert code_of(write, log, 0, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_what_is_given_up_counts_no_more(self, log: Log) -> None:
        """Where the coordinator says no, or nothing, the next batch asks again; a newer question is left alone."""
        old = log.producers.verifications.begin(PRODUCER, 0, starts_at_zero=False)
        new = log.producers.verifications.begin(PRODUCER, 1, starts_at_zero=False)
        log.producers.verifications.give_up(PRODUCER, old)
        assert log.producers.verifications.get(PRODUCER) is new
        log.producers.verifications.give_up(PRODUCER, new)
        assert len(log.producers.verifications) == 0

    def test_a_cut_log_remembers_no_answers(self, log: Log) -> None:
        """Whoever leads a log that was cut asks anew: a marker may have been among what is gone."""
        log.append_as_leader(batch("a"), 0, now_ms=1)
        log.append_as_leader(batch("b"), 0, now_ms=1)
        verify(log)
        log.truncate_to(1)
        assert code_of(write, log, 0) is ErrorCode.INVALID_TXN_STATE

    def test_epochs_that_grow_begin_at_zero(self, log: Log) -> None:
        """Where the epoch is new with the transaction, a first batch beyond sequence 0 has lost its predecessors."""
        verify(log, epoch=4, starts_at_zero=True)
        assert code_of(write, log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert write(log, 0, epoch=4) == 0
        assert write(log, 1, epoch=4) == 1

    def test_others_may_begin_anywhere(self, log: Log) -> None:
        """Of a producer whose epoch stays nobody may know any more what it sent before (KIP-360)."""
        verify(log)
        assert write(log, 30) == 0


class TestEnding:
    def test_an_epoch_that_grows_goes_on_at_zero(self, log: Log) -> None:
        """The marker brings the next transaction's epoch; the old one is refused from then on."""
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

    def test_a_marker_sent_twice_does_not_end_the_next_transaction(self, log: Log) -> None:
        """The end of one transaction, delayed until the next one is open, has the next one's epoch, and is refused."""
        verify(log)
        write(log, 0)
        end(log, epoch=1, grows=True)
        end(log, epoch=1, grows=True)  # a retry, before anything else was written
        verify(log, epoch=1)
        write(log, 0, epoch=1)
        assert code_of(end, log, epoch=1, grows=True) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.producers.is_in_transaction(PRODUCER, 1)
        end(log, epoch=2, grows=True)
        assert not log.producers.is_in_transaction(PRODUCER, 1)

    def test_where_epochs_stay_the_marker_has_the_transactions_own(self, log: Log) -> None:
        """An older producer's marker has the epoch of its records, and sequences go on behind it."""
        verify(log)
        write(log, 0)
        end(log, epoch=0)
        verify(log)
        assert write(log, 1) == 2
        assert code_of(end, log, epoch=-1) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_coordinator_that_was_replaced_ends_nothing(self, log: Log) -> None:
        """Its decision may have been made anew by its successor."""
        verify(log)
        write(log, 0)
        end(log, coordinator_epoch=5)
        verify(log)
        write(log, 1)
        assert code_of(end, log, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        end(log, coordinator_epoch=5)

    def test_a_transaction_without_records_here_is_ended_all_the_same(self, log: Log) -> None:
        """A marker for a producer that wrote nothing here fences its late batches."""
        end(log, epoch=3, grows=True)
        assert code_of(write, log, 0, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


class TestAfterwards:
    def test_open_transactions_do_not_expire(self, tmp_path: Path) -> None:
        """However long a transaction takes, its producer is remembered; one that has ended is forgotten."""
        log = open_log(tmp_path / "t-0", producer_expiration_ms=100)
        verify(log)
        write(log, 0)
        log.delete_expired(10**9, 0)
        assert log.producers.is_in_transaction(PRODUCER, 0)
        end(log)
        log.delete_expired(10**9, 2)
        assert log.producers.get(PRODUCER) is None

    @pytest.mark.parametrize("clean", [True, False])
    def test_after_a_restart_all_is_as_it_was(self, tmp_path: Path, clean: bool) -> None:
        """Open transactions and the epochs of markers are found again, in files or in the batches."""
        log = open_log(tmp_path / "t-0")
        verify(log)
        write(log, 0)
        end(log, committed=False, epoch=1, coordinator_epoch=5, grows=True)
        verify(log, epoch=1)
        write(log, 0, epoch=1)
        if clean:
            log.close()
        else:
            log.flush()
            log.release()
        log = open_log(tmp_path / "t-0", clean_shutdown=clean, recovery_point=3 if clean else 0)
        assert log.producers.is_in_transaction(PRODUCER, 1)
        assert code_of(end, log, epoch=1, grows=True) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert code_of(end, log, epoch=2, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.last_stable_offset(3) == 2
        assert [each.first_offset for each in log.aborted_transactions(0, 3)] == [0]
        assert write(log, 1, epoch=1) == 3

    def test_a_marker_that_is_cut_off_opens_its_transaction_again(self, log: Log) -> None:
        """A follower that loses the end of its log waits for the marker again, and forgets that it was aborted."""
        verify(log)
        write(log, 0)
        end(log, committed=False)
        assert len(log.aborted_transactions(0, 2)) == 1
        log.truncate_to(1)
        assert log.producers.is_in_transaction(PRODUCER, 0)
        assert log.last_stable_offset(1) == 0
        assert log.aborted_transactions(0, 1) == []
        end(log, committed=True)
        assert (log.last_stable_offset(2), log.aborted_transactions(0, 2)) == (2, [])

    def test_readers_wait_at_the_logs_start_where_the_beginning_is_deleted(self, log: Log) -> None:
        """The last stable offset is never one that can no longer be read."""
        verify(log)
        for sequence in range(3):
            write(log, sequence)
        log.advance_log_start_offset(2)
        assert log.last_stable_offset(3) == 2
