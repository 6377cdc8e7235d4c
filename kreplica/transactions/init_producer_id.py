"""A producer comes: which identity InitProducerId gives to it, and whom that fences.  Pure.

KIP-98, KIP-360 (the producer has an identity already) and KIP-939 (it takes a prepared transaction over).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.transactions import fencing
from kreplica.transactions.decisions import NEEDS_PRODUCER_ID, Answer, Decision, following, refused
from kreplica.transactions.end_transaction import aborted_by_fence
from kreplica.transactions.fencing import Claim
from kreplica.transactions.states import (
    AT_REST,
    NEVER_MS,
    NO_IDENTITY,
    NO_PRODUCER_EPOCH,
    NO_TIME,
    Identity,
    Transaction,
    TransactionState,
)


@dataclass(frozen=True, slots=True)
class InitRequest:
    """What an InitProducerId asks for.

    :param claimed: the identity that the producer has; ``NO_IDENTITY`` where it is a new incarnation.
    :param is_two_phase: its transactions do not time out.
    :param keeps_prepared: it takes over the transaction of the incarnation before instead of aborting it.
    """

    asked_timeout_ms: int
    claimed: Identity = NO_IDENTITY
    is_two_phase: bool = False
    keeps_prepared: bool = False

    @property
    def timeout_ms(self) -> int:
        """How long its transactions may take."""
        return NEVER_MS if self.is_two_phase else self.asked_timeout_ms


def begin(
    transactional_id: str,
    transaction: Transaction | None,
    asked: InitRequest,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Decide about an InitProducerId.

    :param transaction: what is known of the transactional id; None where that is nothing.
    :param new_producer_id: where one was asked for.
    """
    if transaction is None:
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        new = Transaction(transactional_id, new_producer_id, 0, asked.timeout_ms, last_update_ms=now_ms)
        return Decision(Answer(identity=new.identity), new)
    claim = fencing.claim(transaction, asked.claimed)
    if claim is Claim.FENCED:
        return refused(ErrorCode.PRODUCER_FENCED)
    if transaction.state in AT_REST:
        return _bump(transaction, asked, claim, new_producer_id, now_ms)
    if transaction.state is not TransactionState.ONGOING:
        return refused(ErrorCode.CONCURRENT_TRANSACTIONS)  # its markers are being written
    if asked.keeps_prepared:
        return _take_over(transaction, asked, claim, new_producer_id, now_ms)
    # The producer comes again when that is complete, and gets an epoch above the fence.
    return Decision(Answer(ErrorCode.CONCURRENT_TRANSACTIONS), aborted_by_fence(transaction, now_ms))


def _bump(
    transaction: Transaction, asked: InitRequest, claim: Claim, new_producer_id: int | None, now_ms: int
) -> Decision:
    grant = _grant(transaction, claim, new_producer_id)
    if grant is None:
        return NEEDS_PRODUCER_ID
    new = transaction.moved(
        TransactionState.EMPTY,
        producer_id=grant.identity.producer_id,
        producer_epoch=grant.identity.epoch,
        timeout_ms=asked.timeout_ms,
        partitions=frozenset(),
        last_update_ms=now_ms,
        start_ms=NO_TIME,
        last_epoch=grant.last_epoch,
        previous_producer_id=grant.previous_producer_id,
        next_identity=NO_IDENTITY,
        client_version=0,
    )
    return Decision(Answer(identity=grant.identity), new)


def _take_over(
    transaction: Transaction, asked: InitRequest, claim: Claim, new_producer_id: int | None, now_ms: int
) -> Decision:
    """The transaction goes on under its own identity; another one is the only one that may end it from now on."""
    grant = _grant(transaction, claim, new_producer_id)
    if grant is None:
        return NEEDS_PRODUCER_ID
    new = replace(
        transaction,
        timeout_ms=asked.timeout_ms,
        last_update_ms=now_ms,
        last_epoch=grant.last_epoch,
        previous_producer_id=grant.previous_producer_id,
        next_identity=grant.identity,
    )
    return Decision(Answer(identity=grant.identity, ongoing=transaction.identity), new)


class _Grant(NamedTuple):
    """An identity for a producer, and what is remembered of the one before it, to recognise a repeated request."""

    identity: Identity
    last_epoch: int
    previous_producer_id: int


def _grant(transaction: Transaction, claim: Claim, new_producer_id: int | None) -> _Grant | None:
    """:return: None where that takes a new producer id, and none is given."""
    current, previous = transaction.client_identity, transaction.previous_producer_id
    if claim is Claim.REPEATED:
        return _Grant(current, transaction.last_epoch, previous)
    granted = following(current, new_producer_id)
    if granted is None:
        return None
    if granted.producer_id != current.producer_id:
        previous = current.producer_id
    # A new incarnation never repeats what the one before it asked for.
    last_epoch = current.epoch if claim is Claim.CURRENT else NO_PRODUCER_EPOCH
    return _Grant(granted, last_epoch, previous)
