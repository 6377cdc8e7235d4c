"""A transaction ends: by its producer, because it took too long, or because another incarnation has come.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kreplica.errors import ErrorCode
from kreplica.transactions import fencing
from kreplica.transactions.decisions import NEEDS_PRODUCER_ID, Answer, Decision, following, refused
from kreplica.transactions.states import (
    EPOCH_GROWS_FROM,
    NO_IDENTITY,
    NO_PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
    Identity,
    S,
    Transaction,
    TransactionState,
)

PREPARE = None
"""The decision is taken: it goes to the log, and then to the partitions."""

E = ErrorCode
Outcome = ErrorCode | None

OUTCOMES: Mapping[tuple[TransactionState, bool], Outcome] = {
    (S.EMPTY, True): E.INVALID_TXN_STATE,
    (S.EMPTY, False): E.INVALID_TXN_STATE,
    (S.ONGOING, True): PREPARE,
    (S.ONGOING, False): PREPARE,
    (S.PREPARE_COMMIT, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, True): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, False): E.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_COMMIT, True): E.NONE,
    (S.COMPLETE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, False): E.NONE,
}
"""By state, and whether it is to be committed, for the present producer: what comes of an EndTxn before version 5, and
of any that is repeated: who asks again is told what came of it."""

GROWING_OUTCOMES: Mapping[tuple[TransactionState, bool], Outcome] = {
    (S.EMPTY, True): E.INVALID_TXN_STATE,
    (S.EMPTY, False): PREPARE,
    (S.ONGOING, True): PREPARE,
    (S.ONGOING, False): PREPARE,
    (S.PREPARE_COMMIT, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, False): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_ABORT, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_ABORT, False): E.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_COMMIT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, False): PREPARE,
    (S.COMPLETE_ABORT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, False): PREPARE,
}
"""The same for a producer whose epoch grows with each transaction (KIP-890): with its present epoch it means the next
transaction, which it may abort without knowing whether anything of it has arrived."""


@dataclass(frozen=True, slots=True)
class EndRequest:
    """What an EndTxn asks for.

    :param epoch_grows: the producer takes a new epoch from the answer (EndTxn 5).
    """

    claimed: Identity
    is_commit: bool
    epoch_grows: bool


def end(transaction: Transaction | None, asked: EndRequest, new_producer_id: int | None, now_ms: int) -> Decision:
    """Decide about an EndTxn.

    :param new_producer_id: where one was asked for.
    """
    if transaction is None:
        return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_repeated = asked.epoch_grows and fencing.is_repeated_end(transaction, asked.claimed)
    if not is_repeated:
        if not fencing.is_known_producer(transaction, asked.claimed):
            return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not fencing.is_current(transaction, asked.claimed):
            return refused(ErrorCode.PRODUCER_FENCED)
    outcome = _outcome(transaction, asked, is_repeated)
    if outcome is not PREPARE:
        told = transaction.client_identity if outcome is E.NONE and asked.epoch_grows else NO_IDENTITY
        return Decision(Answer(outcome, told))
    new = _prepared(transaction, asked, new_producer_id, now_ms)
    if new is None:
        return NEEDS_PRODUCER_ID
    return Decision(Answer(identity=new.client_identity if asked.epoch_grows else NO_IDENTITY), new)


def aborted_by_fence(transaction: Transaction, now_ms: int) -> Transaction:
    """What becomes of an ongoing transaction whose producer is fenced: aborted, with a marker of a higher epoch.

    Nobody is told of that epoch.
    """
    following_identity = transaction.next_identity
    if following_identity != NO_IDENTITY:
        following_identity = Identity(following_identity.producer_id, _raised(following_identity.epoch))
    fenced = transaction.moved(
        TransactionState.PREPARE_EPOCH_FENCE,
        producer_epoch=_raised(transaction.producer_epoch),
        next_identity=following_identity,
        last_epoch=NO_PRODUCER_EPOCH,
        client_version=0,
    )
    return fenced.moved(TransactionState.PREPARE_ABORT, last_update_ms=now_ms)


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """What becomes of a decided transaction when all its markers are written."""
    state = TransactionState.COMPLETE_COMMIT if transaction.is_committed else TransactionState.COMPLETE_ABORT
    producer_id, epoch = transaction.client_identity
    return transaction.moved(
        state,
        producer_id=producer_id,
        producer_epoch=epoch,
        partitions=frozenset(),
        last_update_ms=now_ms,
        next_identity=NO_IDENTITY,
    )


def forgotten(transaction: Transaction) -> Transaction:
    """What becomes of a transactional id that expires."""
    return transaction.moved(TransactionState.DEAD)


def _outcome(transaction: Transaction, asked: EndRequest, is_repeated: bool) -> Outcome:
    if asked.epoch_grows and not is_repeated:
        return GROWING_OUTCOMES[transaction.state, asked.is_commit]
    return OUTCOMES[transaction.state, asked.is_commit]


def _prepared(
    transaction: Transaction, asked: EndRequest, new_producer_id: int | None, now_ms: int
) -> Transaction | None:
    """The decision as it goes to the log; None where a producer id is needed."""
    current = transaction.client_identity
    after = following(current, new_producer_id) if asked.epoch_grows else current
    if after is None:
        return None
    is_same_id = after.producer_id == current.producer_id
    # The marker's epoch is above that of the records, where it can be: then none of them can come after it.
    is_raised = asked.epoch_grows or transaction.is_taken_over
    marker_epoch = _raised(transaction.producer_epoch) if is_raised else transaction.producer_epoch
    is_begun = transaction.state is TransactionState.ONGOING
    prepared = transaction.moved(
        TransactionState.PREPARE_COMMIT if asked.is_commit else TransactionState.PREPARE_ABORT,
        producer_epoch=marker_epoch,
        last_update_ms=now_ms,
        start_ms=transaction.start_ms if is_begun else now_ms,
        last_epoch=current.epoch if asked.epoch_grows else transaction.last_epoch,
        previous_producer_id=transaction.previous_producer_id if is_same_id else current.producer_id,
        next_identity=NO_IDENTITY,
        client_version=EPOCH_GROWS_FROM if asked.epoch_grows else 0,
    )
    return prepared if after == prepared.identity else replace(prepared, next_identity=after)


def _raised(epoch: int) -> int:
    return min(epoch + 1, PRODUCER_EPOCH_MAX)
