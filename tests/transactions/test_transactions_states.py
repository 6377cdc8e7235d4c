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


def test_transitions_outside_the_table_are_refused():
    """Only transitions in the table are possible, and every state is in the table."""
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
    """A prepared commit can only complete as a commit, and a prepared abort only as an abort."""
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
