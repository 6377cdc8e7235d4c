"""Results of EndTxn in every state, for producers whose epochs are or are not bumped by each transaction."""

from pathlib import Path

import pytest
from transactions_scene import P0, transaction

from kreplica.errors import ErrorCode
from kreplica.transactions.end_transaction import EndRequest, aborted_by_fence, complete, end
from kreplica.transactions.records import decode_value, encode_value
from kreplica.transactions.states import EXHAUSTED_EPOCH, NO_IDENTITY, Identity, S

NOW = 5000
CURRENT = Identity(7, 3)
E = ErrorCode
COMMIT, ABORT = True, False


def decide(known, claimed, is_commit, *, grows, new_producer_id=None):
    return end(known, EndRequest(claimed, is_commit, grows), new_producer_id, NOW)


def outcome(decision):
    return decision.response.code if decision.new is None else decision.new.state


C, A = S.PREPARE_COMMIT, S.PREPARE_ABORT

CONSTANT_EPOCH = {
    # state: commit, abort
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (C, A),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}

GROWING_EPOCH = {
    # state: commit and abort with the current epoch, and with the previous one
    S.EMPTY: (E.INVALID_TXN_STATE, A, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.ONGOING: (C, A, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.PREPARE_COMMIT: (*[E.CONCURRENT_TRANSACTIONS] * 3, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (*[E.CONCURRENT_TRANSACTIONS] * 2, E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (E.INVALID_TXN_STATE, A, E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, A, E.INVALID_TXN_STATE, E.NONE),
}

DECIDED_BY_CLIENT = (S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


@pytest.mark.parametrize("state", CONSTANT_EPOCH)
def test_repeated_end_with_a_constant_epoch(state):
    """A repeated EndTxn succeeds, one with the opposite outcome is refused, and the epoch does not grow."""
    known = transaction(state=state, partitions=[P0])
    assert (
        tuple(outcome(decide(known, CURRENT, is_commit, grows=False)) for is_commit in (COMMIT, ABORT))
        == CONSTANT_EPOCH[state]
    )
    for is_commit in (COMMIT, ABORT):
        assert outcome(decide(known, Identity(7, 2), is_commit, grows=False)) is E.PRODUCER_FENCED
        assert outcome(decide(known, Identity(8, 3), is_commit, grows=False)) is E.INVALID_PRODUCER_ID_MAPPING
        assert decide(known, CURRENT, is_commit, grows=False).response.identity == NO_IDENTITY


@pytest.mark.parametrize("state", GROWING_EPOCH)
def test_repeated_end_with_a_growing_epoch(state):
    """The previous epoch identifies a repeated EndTxn (KIP-890), the current epoch one for the next transaction."""
    known = transaction(state=state, partitions=[P0], client_version=2 if state in DECIDED_BY_CLIENT else 0)
    found = tuple(
        outcome(decide(known, claimed, is_commit, grows=True))
        for claimed in (CURRENT, Identity(7, 2))
        for is_commit in (COMMIT, ABORT)
    )
    assert found == GROWING_EPOCH[state]
    for is_commit in (COMMIT, ABORT):
        assert outcome(decide(known, Identity(7, 1), is_commit, grows=True)) is E.PRODUCER_FENCED
        assert outcome(decide(known, Identity(7, 4), is_commit, grows=True)) is E.PRODUCER_FENCED
        assert outcome(decide(known, Identity(8, 3), is_commit, grows=True)) is E.INVALID_PRODUCER_ID_MAPPING


def test_end_of_an_unknown_transactional_id():
    """An unknown ID may have expired, so the producer has to start again."""
    assert outcome(decide(None, CURRENT, COMMIT, grows=False)) is E.INVALID_PRODUCER_ID_MAPPING


def test_epoch_grows_with_the_decision():
    """The marker and the response have the next epoch, as does the response to a repeated request."""
    first = decide(transaction(state=S.ONGOING, partitions=[P0], start_ms=1), CURRENT, COMMIT, grows=True)
    assert first.response.identity == first.new.identity == Identity(7, 4)
    assert (first.new.partitions, first.new.start_ms, first.new.client_version) == ({P0}, 1, 2)
    done = complete(first.new, NOW + 1)
    assert (done.state, done.identity, done.partitions) == (S.COMPLETE_COMMIT, Identity(7, 4), frozenset())
    assert decide(done, CURRENT, COMMIT, grows=True).response == first.response


def test_old_producer_keeps_its_epoch():
    """Markers for an old producer have the epoch of its records."""
    new = decide(transaction(state=S.ONGOING, partitions=[P0]), CURRENT, COMMIT, grows=False).new
    assert new.identity == CURRENT
    assert complete(new, NOW).identity == CURRENT


def test_last_epoch_is_followed_by_another_producer_id():
    """The marker has the last epoch of the old ID, and the next transaction has epoch 0 of the new ID."""
    exhausted = Identity(7, 32766)
    known = transaction(state=S.ONGOING, partitions=[P0], producer_epoch=32766)
    assert decide(known, exhausted, COMMIT, grows=True).needs_producer_id
    first = decide(known, exhausted, COMMIT, grows=True, new_producer_id=8)
    assert first.response.identity == Identity(8, 0)
    assert first.new.identity == Identity(7, 32767)
    assert outcome(decide(first.new, exhausted, COMMIT, grows=True)) is E.CONCURRENT_TRANSACTIONS
    done = complete(first.new, NOW)
    assert done.identity == Identity(8, 0)
    assert decide(done, exhausted, COMMIT, grows=True).response == first.response
    assert outcome(decide(done, exhausted, ABORT, grows=True)) is E.INVALID_TXN_STATE
    assert outcome(decide(done, Identity(7, 32765), COMMIT, grows=True)) is E.INVALID_PRODUCER_ID_MAPPING


def test_transaction_that_has_not_started_can_be_aborted():
    """A producer with growing epochs does not know whether its transaction has started, so it may always abort."""
    first = decide(transaction(), CURRENT, ABORT, grows=True)
    assert (first.response.identity, first.new.state, first.new.start_ms) == (Identity(7, 4), A, NOW)
    assert complete(first.new, NOW).identity == Identity(7, 4)


@pytest.mark.parametrize("grows", [False, True])
def test_fenced_and_timed_out_producers_get_an_error(grows):
    """A producer whose transaction was aborted by the coordinator is fenced, before and after completion."""
    aborted = aborted_by_fence(transaction(state=S.ONGOING, partitions=[P0]), NOW)
    assert (aborted.state, aborted.identity) == (A, Identity(7, 4))
    for known in (aborted, complete(aborted, NOW)):
        for is_commit in (COMMIT, ABORT):
            assert outcome(decide(known, CURRENT, is_commit, grows=grows)) is E.PRODUCER_FENCED


# --- two phases (KIP-939) ---


@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_successor_ends_a_transaction_that_it_took_over(is_commit):
    """The marker has the transaction's producer ID and a higher epoch than its records."""
    taken = transaction(state=S.ONGOING, partitions=[P0], next_identity=Identity(7, 4))
    assert outcome(decide(taken, CURRENT, is_commit, grows=True)) is E.PRODUCER_FENCED
    first = decide(taken, Identity(7, 4), is_commit, grows=True)
    assert (first.new.identity, first.response.identity) == (Identity(7, 4), Identity(7, 5))
    done = complete(first.new, NOW)
    assert done.identity == Identity(7, 5)
    assert decide(done, Identity(7, 4), is_commit, grows=True).response == first.response


def test_successor_with_another_producer_id_ends_a_transaction():
    """The next epoch belongs to the new ID, or to a third ID if the epochs of the new one are exhausted."""
    taken = transaction(state=S.ONGOING, partitions=[P0], producer_epoch=32766, next_identity=Identity(8, 0))
    first = decide(taken, Identity(8, 0), COMMIT, grows=True)
    assert (first.new.identity, first.response.identity) == (Identity(7, 32767), Identity(8, 1))
    assert complete(first.new, NOW).identity == Identity(8, 1)
    exhausted = transaction(state=S.ONGOING, partitions=[P0], next_identity=Identity(8, 32766))
    third = decide(exhausted, Identity(8, 32766), COMMIT, grows=True, new_producer_id=9)
    assert (third.new.identity, third.response.identity) == (Identity(7, 4), Identity(9, 0))
    assert decide(complete(third.new, NOW), Identity(8, 32766), COMMIT, grows=True).response == third.response


def test_successor_with_a_constant_epoch_keeps_its_identity():
    """Ending a transaction that was taken over does not change a constant epoch."""
    taken = transaction(state=S.ONGOING, partitions=[P0], next_identity=Identity(7, 4))
    first = decide(taken, Identity(7, 4), COMMIT, grows=False)
    assert first.new.identity == Identity(7, 4)
    assert complete(first.new, NOW).identity == Identity(7, 4)


def reload(known):
    """Return the transaction that the next coordinator loads from the log."""
    return decode_value(known.transactional_id, encode_value(known))


@pytest.mark.parametrize("epoch", [3, EXHAUSTED_EPOCH])
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_repeated_end_is_never_an_invalid_state(is_commit, grows, epoch):
    """A repeated EndTxn succeeds at the same and the next coordinator, before and after the markers are written."""
    claimed = Identity(7, epoch)
    ongoing = transaction(state=S.ONGOING, partitions=[P0], producer_epoch=epoch)
    decided = decide(ongoing, claimed, is_commit, grows=grows, new_producer_id=8)
    expected = {E.NONE: decided.response.identity, E.CONCURRENT_TRANSACTIONS: NO_IDENTITY}
    for known in (decided.new, complete(decided.new, NOW)):
        for seen in (known, reload(known)):
            again = decide(seen, claimed, is_commit, grows=grows, new_producer_id=9)
            assert again.new is None
            assert again.response.code in expected
            assert again.response.identity == expected[again.response.code]
    repeated = decide(reload(ongoing), claimed, is_commit, grows=grows, new_producer_id=8)
    assert repeated.new is not None
    assert repeated.response.code is E.NONE


def test_response_table_of_the_docs():
    """``docs/explanation/transactions.md`` lists the EndTxn response of each state."""
    text = (Path(__file__).parents[2] / "docs" / "explanation" / "transactions.md").read_text()
    rows = {
        cells[0]: tuple(cells[1:])
        for line in text.partition("## EndTxn responses")[2].partition("\n## ")[0].splitlines()
        if line.startswith("| ") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    for state, answers in GROWING_EPOCH.items():
        words = tuple("decided" if isinstance(each, S) else each.name for each in (*CONSTANT_EPOCH[state], *answers))
        assert rows[state.title] == words
