"""Decides an InitProducerId: the identity of the producer and the fencing of earlier ones. Pure functions.

Implements KIP-98, KIP-360 (the producer already has an identity) and KIP-939 (it takes over a prepared transaction).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.transactions import fencing
from kreplica.transactions.decision_result import (
    NEEDS_PRODUCER_ID,
    Decision,
    ProducerResponse,
    identity_after,
    rejected,
)
from kreplica.transactions.end_transaction import aborted_by_fence
from kreplica.transactions.fencing import Claim
from kreplica.transactions.states import (
    INACTIVE,
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
    """An InitProducerId request.

    :param claimed: current identity of the producer; ``NO_IDENTITY`` for a new incarnation.
    :param is_two_phase: True if the producer's transactions do not time out.
    :param keeps_prepared: True to take over the transaction of the previous incarnation instead of aborting it.
    :param address: client address that is charged for the memory of the transactional id.
    """

    requested_timeout_ms: int
    claimed: Identity = NO_IDENTITY
    is_two_phase: bool = False
    keeps_prepared: bool = False
    address: str = ""

    @property
    def timeout_ms(self) -> int:
        """Transaction timeout."""
        return NEVER_MS if self.is_two_phase else self.requested_timeout_ms


def begin(
    transactional_id: str,
    transaction: Transaction | None,
    request: InitRequest,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Decide an InitProducerId.

    :param transaction: current state of the transactional id; None if it is unknown.
    :param new_producer_id: a new producer id, if the previous attempt to decide needed one.
    """
    if transaction is None:
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        new = Transaction(transactional_id, new_producer_id, 0, request.timeout_ms, last_update_ms=now_ms)
        return Decision(ProducerResponse(identity=new.identity), new)
    claim = fencing.claim(transaction, request.claimed)
    if claim is Claim.FENCED:
        return rejected(ErrorCode.PRODUCER_FENCED)
    if transaction.state in INACTIVE:
        return _bump(transaction, request, claim, new_producer_id, now_ms)
    if transaction.state is not TransactionState.ONGOING:
        return rejected(ErrorCode.CONCURRENT_TRANSACTIONS)  # its markers are being written; the client retries
    if request.keeps_prepared:
        return _take_over(transaction, request, claim, new_producer_id, now_ms)
    # The producer retries, and is granted an epoch above the fenced one once the abort is complete.
    return Decision(ProducerResponse(ErrorCode.CONCURRENT_TRANSACTIONS), aborted_by_fence(transaction, now_ms))


def _bump(
    transaction: Transaction, request: InitRequest, claim: Claim, new_producer_id: int | None, now_ms: int
) -> Decision:
    grant = _grant(transaction, claim, new_producer_id)
    if grant is None:
        return NEEDS_PRODUCER_ID
    new = transaction.with_state(
        TransactionState.EMPTY,
        producer_id=grant.identity.producer_id,
        producer_epoch=grant.identity.epoch,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        last_update_ms=now_ms,
        start_ms=NO_TIME,
        last_epoch=grant.last_epoch,
        previous_producer_id=grant.previous_producer_id,
        next_identity=NO_IDENTITY,
        client_version=0,
    )
    return Decision(ProducerResponse(identity=grant.identity), new)


def _take_over(
    transaction: Transaction, request: InitRequest, claim: Claim, new_producer_id: int | None, now_ms: int
) -> Decision:
    """Keep the transaction under its identity, and grant a new identity, which is then required to end it."""
    grant = _grant(transaction, claim, new_producer_id)
    if grant is None:
        return NEEDS_PRODUCER_ID
    new = replace(
        transaction,
        timeout_ms=request.timeout_ms,
        last_update_ms=now_ms,
        last_epoch=grant.last_epoch,
        previous_producer_id=grant.previous_producer_id,
        next_identity=grant.identity,
    )
    return Decision(ProducerResponse(identity=grant.identity, ongoing=transaction.identity), new)


class _Grant(NamedTuple):
    """A granted identity, and the data for recognizing a repeated request for it."""

    identity: Identity
    last_epoch: int
    previous_producer_id: int


def _grant(transaction: Transaction, claim: Claim, new_producer_id: int | None) -> _Grant | None:
    """Return the next identity, or None if a new producer id is needed but not given."""
    current, previous = transaction.client_identity, transaction.previous_producer_id
    if claim is Claim.REPEATED:
        return _Grant(current, transaction.last_epoch, previous)
    granted = identity_after(current, new_producer_id)
    if granted is None:
        return None
    if granted.producer_id != current.producer_id:
        previous = current.producer_id
    # A new incarnation never repeats a request of the previous one.
    last_epoch = current.epoch if claim is Claim.CURRENT else NO_PRODUCER_EPOCH
    return _Grant(granted, last_epoch, previous)
