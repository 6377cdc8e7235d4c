"""Result of a decision: a response, and a transaction to commit to the log first."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.transactions.states import NO_IDENTITY, Identity, Transaction


class ProducerResponse(NamedTuple):
    """Response to a producer's request.

    :param identity: the producer's new identity, for requests that return one.
    :param ongoing: identity of the transaction that the producer took over (KIP-939).
    """

    code: ErrorCode = ErrorCode.NONE
    identity: Identity = NO_IDENTITY
    ongoing: Identity = NO_IDENTITY


class Decision(NamedTuple):
    """Result of a pure decision; nothing has changed yet.

    :param response: sent once ``new`` is committed, or immediately if ``new`` is None.
    :param new: next state of the transactional id.
    :param needs_producer_id: True if nothing was decided: decide again with a new producer id.
    """

    response: ProducerResponse = ProducerResponse()
    new: Transaction | None = None
    needs_producer_id: bool = False


NEEDS_PRODUCER_ID = Decision(needs_producer_id=True)


def rejected(code: ErrorCode) -> Decision:
    """Return a decision that changes nothing."""
    return Decision(ProducerResponse(code))


def identity_after(current: Identity, new_producer_id: int | None) -> Identity | None:
    """Return the next identity: the next epoch, or epoch 0 of the new producer id if the epochs are exhausted.

    :return: None if a new producer id is needed but not given.
    """
    if not current.is_exhausted:
        return Identity(current.producer_id, current.epoch + 1)
    return None if new_producer_id is None else Identity(new_producer_id, 0)
