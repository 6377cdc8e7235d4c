"""What comes of a request: an answer, and perhaps a transaction that is to be committed to the log first."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.transactions.states import NO_IDENTITY, Identity, Transaction


class Answer(NamedTuple):
    """What a producer is told.

    :param identity: by what it is known from now on, where the API says so.
    :param ongoing: what the transaction that it took over is known by (KIP-939).
    """

    code: ErrorCode = ErrorCode.NONE
    identity: Identity = NO_IDENTITY
    ongoing: Identity = NO_IDENTITY


class Decision(NamedTuple):
    """Pure: nothing has changed yet.

    :param answer: given once ``new`` is committed, or at once where there is none.
    :param new: what the transactional id is to become.
    :param needs_producer_id: nothing is decided: ask again with a new producer id.
    """

    answer: Answer = Answer()
    new: Transaction | None = None
    needs_producer_id: bool = False


NEEDS_PRODUCER_ID = Decision(needs_producer_id=True)


def refused(code: ErrorCode) -> Decision:
    """No: nothing changes."""
    return Decision(Answer(code))


def following(current: Identity, new_producer_id: int | None) -> Identity | None:
    """The identity after one: the next epoch, or epoch 0 of a new id where the epochs are exhausted.

    :return: None where that takes a new producer id, and none is given.
    """
    if not current.is_exhausted:
        return Identity(current.producer_id, current.epoch + 1)
    return None if new_producer_id is None else Identity(new_producer_id, 0)
