"""Responses to InitProducerId in every state."""

import pytest
from transactions_scene import ID, P0, transaction

from kreplica.errors import ErrorCode
from kreplica.transactions.init_producer_id import InitRequest, begin
from kreplica.transactions.states import NEVER_MS, NO_IDENTITY, Identity, S

NOW = 5000
CURRENT = Identity(7, 3)


def decide(known, claimed=NO_IDENTITY, new_producer_id=None, **more):
    return begin(ID, known, InitRequest(30_000, claimed, **more), new_producer_id, NOW)


def response(decision):
    return decision.response.code, decision.response.identity, None if decision.new is None else decision.new.state


def test_unknown_transactional_id_gets_a_producer_id():
    """The first incarnation has epoch 0; an identity from before the ID expired is ignored."""
    assert decide(None).needs_producer_id
    for claimed in (NO_IDENTITY, Identity(99, 4)):
        decision = decide(None, claimed, 8)
        assert response(decision) == (ErrorCode.NONE, Identity(8, 0), S.EMPTY)
        assert decision.new.timeout_ms == 30_000


FENCED = (ErrorCode.PRODUCER_FENCED, NO_IDENTITY, None)
RETRY = (ErrorCode.CONCURRENT_TRANSACTIONS, NO_IDENTITY, None)
ABORT = (ErrorCode.CONCURRENT_TRANSACTIONS, NO_IDENTITY, S.PREPARE_ABORT)
NEXT = (ErrorCode.NONE, Identity(7, 4), S.EMPTY)

TABLE = {
    # state: responses to a new incarnation, to the current producer, and to an earlier one
    S.EMPTY: (NEXT, NEXT, FENCED),
    S.ONGOING: (ABORT, ABORT, FENCED),
    S.PREPARE_COMMIT: (RETRY, RETRY, FENCED),
    S.PREPARE_ABORT: (RETRY, RETRY, FENCED),
    S.COMPLETE_COMMIT: (NEXT, NEXT, FENCED),
    S.COMPLETE_ABORT: (NEXT, NEXT, FENCED),
}


@pytest.mark.parametrize("state", TABLE)
def test_producer_gets_the_next_epoch_without_an_open_transaction(state):
    """An ongoing transaction is aborted first; fenced producers are rejected."""
    known = transaction(state=state, partitions=[P0])
    expected = TABLE[state]
    for claimed, row in zip((NO_IDENTITY, CURRENT, Identity(7, 2)), expected, strict=True):
        assert response(decide(known, claimed)) == row
    assert response(decide(known, Identity(6, 3))) == FENCED


def test_latest_timeout_applies():
    assert decide(transaction()).new.timeout_ms == 30_000


def test_repeated_request_gets_the_first_response():
    """A producer that missed the response retries with its current epoch (KIP-360)."""
    first = decide(transaction(state=S.COMPLETE_ABORT), CURRENT)
    again = decide(first.new, CURRENT)
    assert response(again) == response(first) == NEXT
    assert response(decide(again.new, CURRENT)) == NEXT


def test_new_incarnation_fences_repeated_requests():
    """After a new incarnation, a retry of the old one is fenced."""
    first = decide(transaction(), CURRENT)
    other = decide(first.new)
    assert other.response.identity == Identity(7, 5)
    assert response(decide(other.new, CURRENT)) == FENCED
    assert response(decide(other.new, Identity(7, 4))) == FENCED


def test_last_epoch_is_followed_by_another_producer_id():
    """Epoch 32766 is followed by epoch 0 of a new ID, even for a repeated request."""
    exhausted = Identity(7, 32766)
    known = transaction(producer_epoch=32766, state=S.COMPLETE_COMMIT)
    assert decide(known, exhausted).needs_producer_id
    first = decide(known, exhausted, 8)
    assert response(first) == (ErrorCode.NONE, Identity(8, 0), S.EMPTY)
    assert response(decide(first.new, exhausted)) == response(first)
    assert response(decide(first.new, Identity(7, 32765))) == FENCED
    fresh = decide(known, NO_IDENTITY, 9)
    assert response(fresh) == (ErrorCode.NONE, Identity(9, 0), S.EMPTY)
    assert response(decide(fresh.new, exhausted)) == FENCED


def test_abort_of_the_last_epoch_leads_to_another_producer_id():
    """A transaction of epoch 32766 is aborted with a marker of epoch 32767."""
    aborted = decide(transaction(producer_epoch=32766, state=S.ONGOING)).new
    assert aborted.producer_epoch == 32767
    known = aborted.with_state(S.COMPLETE_ABORT)
    assert response(decide(known, Identity(7, 32766), 8)) == FENCED
    assert response(decide(known, NO_IDENTITY, 8)) == (ErrorCode.NONE, Identity(8, 0), S.EMPTY)


def test_epoch_of_an_abort_is_never_returned():
    """The abort uses the epoch between those of the old and the new incarnation."""
    aborted = decide(transaction(state=S.ONGOING, partitions=[P0])).new
    assert aborted.identity == Identity(7, 4)
    assert aborted.partitions == {P0}
    assert decide(aborted.with_state(S.COMPLETE_ABORT)).response.identity == Identity(7, 5)


# --- two phases (KIP-939) ---


def test_two_phase_transactions_do_not_time_out():
    """A prepared transaction waits for its decision indefinitely."""
    assert decide(transaction(), is_two_phase=True).new.timeout_ms == NEVER_MS


def take_over(known, claimed=NO_IDENTITY, new_producer_id=None):
    return decide(known, claimed, new_producer_id, is_two_phase=True, keeps_prepared=True)


def test_prepared_transaction_is_taken_over():
    """The new incarnation gets its own identity and that of the prepared transaction."""
    known = transaction(state=S.ONGOING, partitions=[P0], start_ms=100)
    first = take_over(known)
    assert response(first) == (ErrorCode.NONE, Identity(7, 4), S.ONGOING)
    assert first.response.ongoing == CURRENT
    assert (first.new.partitions, first.new.start_ms, first.new.timeout_ms) == ({P0}, 100, NEVER_MS)
    second = take_over(first.new)
    assert (second.response.identity, second.response.ongoing) == (Identity(7, 5), CURRENT)
    assert response(take_over(second.new, Identity(7, 4))) == FENCED
    assert response(take_over(second.new, CURRENT)) == FENCED


def test_takeover_may_be_repeated():
    """A repeated request gets the same identity."""
    taken = take_over(transaction(state=S.ONGOING), CURRENT)
    assert taken.response.identity == Identity(7, 4)
    assert take_over(taken.new, CURRENT).response == taken.response


def test_takeover_with_exhausted_epochs_gets_another_producer_id():
    """The prepared transaction keeps its own producer ID."""
    known = transaction(state=S.ONGOING, producer_epoch=32766)
    assert take_over(known).needs_producer_id
    taken = take_over(known, new_producer_id=8)
    assert (taken.response.identity, taken.response.ongoing) == (Identity(8, 0), Identity(7, 32766))
    assert taken.new.identity == Identity(7, 32766)


def test_takeover_without_a_prepared_transaction():
    """The response contains no prepared transaction if there is none."""
    for state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        decision = take_over(transaction(state=state))
        assert response(decision) == NEXT
        assert decision.response.ongoing == NO_IDENTITY
    assert response(take_over(transaction(state=S.PREPARE_COMMIT))) == RETRY


def test_new_incarnation_without_a_takeover_aborts():
    """A transaction is aborted even after a takeover, and both identities are fenced."""
    taken = take_over(transaction(state=S.ONGOING)).new
    aborted = decide(taken).new
    assert aborted.state is S.PREPARE_ABORT
    assert (aborted.identity, aborted.next_identity) == (Identity(7, 4), Identity(7, 5))
