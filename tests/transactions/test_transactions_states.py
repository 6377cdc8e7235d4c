"""Valid transitions of transactions."""

from itertools import product

import pytest
from transactions_scene import transaction

from kreplica.transactions.states import (
    DECIDED,
    INACTIVE,
    PREVIOUS,
    STATES_BY_TITLE,
    Identity,
    InvalidTransition,
    TransactionState,
)


def test_every_transition_is_either_in_the_table_or_refused():
    """Every state is reachable, and transitions that are not in the table are rejected."""
    allowed = 0
    for old, new in product(TransactionState, TransactionState):
        before = transaction(state=old)
        if old in PREVIOUS[new]:
            assert before.with_state(new).state is new
            allowed += 1
        else:
            with pytest.raises(InvalidTransition, match=f"tx: {old.title} -> {new.title}"):
                before.with_state(new)
    assert allowed == 19
    assert set(PREVIOUS) == set(TransactionState)


def test_decision_is_final():
    """A decided commit can only become an abort in the next transaction, and vice versa."""
    assert [state for state in TransactionState if TransactionState.PREPARE_COMMIT in PREVIOUS[state]] == [
        TransactionState.COMPLETE_COMMIT
    ]
    assert [state for state in TransactionState if TransactionState.PREPARE_ABORT in PREVIOUS[state]] == [
        TransactionState.COMPLETE_ABORT
    ]


def test_state_names_are_kafkas():
    """State names are those that Kafka's tools expect."""
    assert [state.title for state in TransactionState] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
    assert STATES_BY_TITLE["CompleteAbort"] is TransactionState.COMPLETE_ABORT
    assert not INACTIVE & DECIDED


def test_last_epoch_is_reserved():
    """The last epoch is used only for fencing."""
    assert not Identity(7, 32765).is_exhausted
    assert Identity(7, 32766).is_exhausted
