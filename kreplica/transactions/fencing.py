"""The guards of transactions: who may act for a transactional id, and whose request is one that was served before.

Small predicates, called through this module, so that each can be taken away to see what breaks.
"""

from __future__ import annotations

from enum import Enum

from kreplica.transactions.states import (
    EPOCH_GROWS_FROM,
    EXHAUSTED_EPOCH,
    NO_IDENTITY,
    NO_PRODUCER_EPOCH,
    Identity,
    Transaction,
)


class Claim(Enum):
    """What a producer that asks for an identity says of the one it has: none, or the CURRENT one; the one before, so
    that this is a REPEATED request; or one that is FENCED."""

    NONE = "none"
    CURRENT = "current"
    REPEATED = "repeated"
    FENCED = "fenced"


def claim(transaction: Transaction, claimed: Identity) -> Claim:
    """How far the identity that an InitProducerId names goes (KIP-360)."""
    if claimed == NO_IDENTITY:
        return Claim.NONE
    if is_current(transaction, claimed):
        return Claim.CURRENT
    return Claim.REPEATED if is_repeated_bump(transaction, claimed) else Claim.FENCED


def is_known_producer(transaction: Transaction, claimed: Identity) -> bool:
    """Whether the producer id is that of the transactional id."""
    return claimed.producer_id == transaction.client_identity.producer_id


def is_current(transaction: Transaction, claimed: Identity) -> bool:
    """Whether nobody has come after that producer."""
    return claimed == transaction.client_identity


def is_repeated_bump(transaction: Transaction, claimed: Identity) -> bool:
    """Whether that identity is the one before the last bump that its own producer asked for."""
    if transaction.last_epoch == NO_PRODUCER_EPOCH or claimed.epoch != transaction.last_epoch:
        return False
    return claimed.producer_id == transaction.client_identity.producer_id or (
        claimed.producer_id == transaction.previous_producer_id and claimed.is_exhausted
    )


def is_repeated_end(transaction: Transaction, claimed: Identity) -> bool:
    """Whether that identity is the one that ended the last transaction, which made the epoch grow (KIP-890).

    An end that was not the producer's own, a time-out or a new incarnation, is never repeated: who had that identity
    is fenced.
    """
    if transaction.client_version < EPOCH_GROWS_FROM:
        return False
    current = transaction.client_identity
    if claimed.producer_id == current.producer_id:
        return claimed.epoch == current.epoch - 1
    return (
        claimed.producer_id == transaction.previous_producer_id
        and claimed.epoch == EXHAUSTED_EPOCH
        and current.epoch == 0
    )


def is_allowed_timeout(timeout_ms: int, max_ms: int) -> bool:
    """Whether a producer may ask for transactions that take so long."""
    return 0 < timeout_ms <= max_ms


def is_two_phase_allowed(asked: bool, *, enabled: bool) -> bool:
    """Whether a producer may prepare transactions that do not time out (KIP-939)."""
    return enabled or not asked
