"""Adding and verifying partitions in every state of a transaction."""

import pytest
from transactions_scene import P0, P1, transaction

from kreplica.errors import ErrorCode
from kreplica.transactions.add_partitions import add, verify
from kreplica.transactions.states import Identity, S

NOW = 5000
CURRENT = Identity(7, 3)
E = ErrorCode

STATES = (S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        (Identity(7, 2), E.PRODUCER_FENCED),
        (Identity(7, 4), E.PRODUCER_FENCED),
        (Identity(8, 3), E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_other_producers_are_refused_in_every_state(state, claimed, code):
    """The previous epoch, an unknown epoch and another producer ID are refused."""
    known = transaction(state=state, partitions=[P0])
    assert add(known, claimed, [P0], NOW) == ((code, (-1, -1), (-1, -1)), None, False)
    assert verify(known, claimed, [P0, P1]) == {P0: code, P1: code}


def test_unknown_transactional_id_is_refused():
    assert add(None, CURRENT, [P0], NOW).response.code is E.INVALID_PRODUCER_ID_MAPPING
    assert verify(None, CURRENT, [P0]) == {P0: E.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_first_partition_starts_a_transaction(state):
    """A new transaction has no partitions of the previous one."""
    known = transaction(state=state, start_ms=1, client_version=2)
    new = add(known, CURRENT, [P0], NOW).new
    assert (new.state, new.partitions, new.start_ms, new.client_version) == (S.ONGOING, {P0}, NOW, 0)
    assert verify(known, CURRENT, [P0]) == {P0: E.TRANSACTION_ABORTABLE}


def test_further_partitions_are_added_to_the_ongoing_transaction():
    """Adding partitions keeps the start time; adding known partitions needs no write."""
    known = transaction(state=S.ONGOING, partitions=[P0], start_ms=1)
    new = add(known, CURRENT, [P0, P1], NOW).new
    assert (new.partitions, new.start_ms, new.last_update_ms) == ({P0, P1}, 1, NOW)
    assert add(new, CURRENT, [P1], NOW).new is None
    assert verify(new, CURRENT, [P0, P1]) == {P0: E.NONE, P1: E.NONE}
    assert verify(known, CURRENT, [P0, P1]) == {P0: E.NONE, P1: E.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_no_transaction_starts_while_markers_are_written(state):
    known = transaction(state=state, partitions=[P0])
    assert add(known, CURRENT, [P0], NOW).response.code is E.CONCURRENT_TRANSACTIONS
    assert verify(known, CURRENT, [P0]) == {P0: E.CONCURRENT_TRANSACTIONS}


def test_transaction_that_was_taken_over_can_only_be_ended():
    """No partition can be added after a takeover, since markers would not cover the new identity (KIP-939)."""
    taken = transaction(state=S.ONGOING, partitions=[P0], next_identity=Identity(7, 4))
    assert add(taken, Identity(7, 4), [P0], NOW).response.code is E.INVALID_TXN_STATE
    assert verify(taken, Identity(7, 4), [P0]) == {P0: E.TRANSACTION_ABORTABLE}
    assert add(taken, CURRENT, [P0], NOW).response.code is E.PRODUCER_FENCED
    assert verify(taken, CURRENT, [P0]) == {P0: E.PRODUCER_FENCED}
