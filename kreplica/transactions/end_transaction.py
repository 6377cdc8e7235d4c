"""Decides the end of a transaction: by EndTxn, by timeout, or by a new incarnation of the producer. Pure functions.

``shard`` commits the decision to the log, and then ``marker_sender`` sends the transaction markers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kreplica.errors import ErrorCode
from kreplica.transactions import fencing
from kreplica.transactions.decision_result import (
    NEEDS_PRODUCER_ID,
    Decision,
    ProducerResponse,
    identity_after,
    rejected,
)
from kreplica.transactions.states import (
    BUMPS_EPOCH_VERSION_MIN,
    NO_IDENTITY,
    NO_PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
    Identity,
    S,
    Transaction,
    TransactionState,
)

PREPARE = None
"""Outcome of an accepted EndTxn: the decision is written to the log, then the markers to the partitions."""

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
"""Result of an EndTxn of the current producer by state and requested outcome (True to commit), before version 5.

Also used for repeated requests of any version, which get the same result as the first one.
"""

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
"""Result of EndTxn for producers whose epoch is bumped by each transaction (KIP-890).

The current epoch belongs to the next transaction, which may be aborted even if no partition was added to it.
"""


@dataclass(frozen=True, slots=True)
class EndRequest:
    """An EndTxn request.

    :param bumps_epoch: True if the producer takes its new epoch from the response (EndTxn 5).
    """

    claimed: Identity
    is_commit: bool
    bumps_epoch: bool


def end(transaction: Transaction | None, request: EndRequest, new_producer_id: int | None, now_ms: int) -> Decision:
    """Decide an EndTxn.

    :param new_producer_id: a new producer id, if the previous attempt to decide needed one.
    """
    if transaction is None:
        return rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_repeated = request.bumps_epoch and fencing.is_repeated_end(transaction, request.claimed)
    if not is_repeated:
        if not fencing.is_known_producer(transaction, request.claimed):
            return rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not fencing.is_current(transaction, request.claimed):
            return rejected(ErrorCode.PRODUCER_FENCED)
    outcome = _outcome(transaction, request, is_repeated)
    if outcome is not PREPARE:
        identity = transaction.client_identity if outcome is E.NONE and request.bumps_epoch else NO_IDENTITY
        return Decision(ProducerResponse(outcome, identity))
    new = _prepared(transaction, request, new_producer_id, now_ms)
    if new is None:
        return NEEDS_PRODUCER_ID
    return Decision(ProducerResponse(identity=new.client_identity if request.bumps_epoch else NO_IDENTITY), new)


def aborted_by_fence(transaction: Transaction, now_ms: int) -> Transaction:
    """Return an ongoing transaction aborted with a higher epoch, because its producer is fenced.

    No producer ever receives that epoch.
    """
    following_identity = transaction.next_identity
    if following_identity != NO_IDENTITY:
        following_identity = Identity(following_identity.producer_id, _raised(following_identity.epoch))
    fenced = transaction.with_state(
        TransactionState.PREPARE_EPOCH_FENCE,
        producer_epoch=_raised(transaction.producer_epoch),
        next_identity=following_identity,
        last_epoch=NO_PRODUCER_EPOCH,
        client_version=0,
    )
    return fenced.with_state(TransactionState.PREPARE_ABORT, last_update_ms=now_ms)


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Return the state of a decided transaction after all its markers have been written."""
    state = TransactionState.COMPLETE_COMMIT if transaction.is_committed else TransactionState.COMPLETE_ABORT
    producer_id, epoch = transaction.client_identity
    return transaction.with_state(
        state,
        producer_id=producer_id,
        producer_epoch=epoch,
        partitions=frozenset(),
        last_update_ms=now_ms,
        next_identity=NO_IDENTITY,
    )


def removed(transaction: Transaction) -> Transaction:
    """Return the state that removes an expired transactional id."""
    return transaction.with_state(TransactionState.DEAD)


def _outcome(transaction: Transaction, request: EndRequest, is_repeated: bool) -> Outcome:
    if request.bumps_epoch and not is_repeated:
        return GROWING_OUTCOMES[transaction.state, request.is_commit]
    return OUTCOMES[transaction.state, request.is_commit]


def _prepared(
    transaction: Transaction, request: EndRequest, new_producer_id: int | None, now_ms: int
) -> Transaction | None:
    """Return the decided transaction for the log, or None if a producer id is needed."""
    current = transaction.client_identity
    after = identity_after(current, new_producer_id) if request.bumps_epoch else current
    if after is None:
        return None
    is_same_id = after.producer_id == current.producer_id
    # The marker's epoch is above that of the records, so no delayed record of the transaction can follow the marker.
    is_raised = request.bumps_epoch or transaction.is_taken_over
    marker_epoch = _raised(transaction.producer_epoch) if is_raised else transaction.producer_epoch
    is_started = transaction.state is TransactionState.ONGOING
    prepared = transaction.with_state(
        TransactionState.PREPARE_COMMIT if request.is_commit else TransactionState.PREPARE_ABORT,
        producer_epoch=marker_epoch,
        last_update_ms=now_ms,
        start_ms=transaction.start_ms if is_started else now_ms,
        last_epoch=current.epoch if request.bumps_epoch else transaction.last_epoch,
        previous_producer_id=transaction.previous_producer_id if is_same_id else current.producer_id,
        next_identity=NO_IDENTITY,
        client_version=BUMPS_EPOCH_VERSION_MIN if request.bumps_epoch else 0,
    )
    return prepared if after == prepared.identity else replace(prepared, next_identity=after)


def _raised(epoch: int) -> int:
    return min(epoch + 1, PRODUCER_EPOCH_MAX)
