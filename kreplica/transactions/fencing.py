"""Fencing predicates for transactions: current producers and repeated requests.

They are called through this module, so that tests can replace each of them.
"""

from __future__ import annotations

from enum import Enum

from kreplica.transactions.states import (
    BUMPS_EPOCH_VERSION_MIN,
    EXHAUSTED_EPOCH,
    NO_IDENTITY,
    NO_PRODUCER_EPOCH,
    Identity,
    Transaction,
)


class Claim(Enum):
    """Relation between the identity in an InitProducerId and the current one.

    NONE: no identity given. CURRENT: the current identity. REPEATED: the previous identity, in a repeated request.
    FENCED: any other identity.
    """

    NONE = "none"
    CURRENT = "current"
    REPEATED = "repeated"
    FENCED = "fenced"


def claim(transaction: Transaction, claimed: Identity) -> Claim:
    """Classify the identity in an InitProducerId (KIP-360)."""
    if claimed == NO_IDENTITY:
        return Claim.NONE
    if is_current(transaction, claimed):
        return Claim.CURRENT
    return Claim.REPEATED if is_repeated_bump(transaction, claimed) else Claim.FENCED


def is_known_producer(transaction: Transaction, claimed: Identity) -> bool:
    """Return True if the producer id belongs to the transactional id."""
    return claimed.producer_id == transaction.client_identity.producer_id


def is_current(transaction: Transaction, claimed: Identity) -> bool:
    """Return True if this producer has not been fenced by a later one."""
    return claimed == transaction.client_identity


def is_repeated_bump(transaction: Transaction, claimed: Identity) -> bool:
    """Return True if the identity is the one before the last epoch bump that this producer requested."""
    if transaction.last_epoch == NO_PRODUCER_EPOCH or claimed.epoch != transaction.last_epoch:
        return False
    return claimed.producer_id == transaction.client_identity.producer_id or (
        claimed.producer_id == transaction.previous_producer_id and claimed.is_exhausted
    )


def is_repeated_end(transaction: Transaction, claimed: Identity) -> bool:
    """Return True if the identity is the one that ended the last transaction and thereby bumped the epoch (KIP-890).

    If a timeout or a new incarnation ended it, the earlier identity is fenced instead.
    """
    if transaction.client_version < BUMPS_EPOCH_VERSION_MIN:
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
    """Return True if producers may request this transaction timeout."""
    return 0 < timeout_ms <= max_ms


def is_two_phase_allowed(requested: bool, *, enabled: bool) -> bool:
    """Return True if a producer may use transactions that do not time out (KIP-939)."""
    return enabled or not requested
