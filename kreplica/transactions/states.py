"""What a coordinator knows of one transactional id, and which of its states may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

NO_TIME = -1
"""A time in milliseconds that is not set."""

NEVER_MS = 2**31 - 1
"""The timeout of a two-phase transaction: whoever prepared it decides, however long that takes (KIP-939)."""

PRODUCER_EPOCH_MAX = 2**15 - 1
"""Only ever on a marker: no producer is told of it, so that whoever had the last one before can be fenced."""

EXHAUSTED_EPOCH = PRODUCER_EPOCH_MAX - 1
"""The last epoch that a producer is told of; what follows it is epoch 0 of another producer id."""

EPOCH_GROWS_FROM = 2
"""The client's transaction version from which the epoch grows with each transaction (KIP-890)."""


class TransactionState(IntEnum):
    """By the numbers that they have in the log.

    EMPTY: a producer has its id, and no transaction.  ONGOING: partitions were added.  PREPARE_*: it is decided, and
    markers are being written.  COMPLETE_*: all of them are.  DEAD: forgotten, as soon as its tombstone is committed.
    PREPARE_EPOCH_FENCE: about to be aborted because its producer is fenced; passed through, and not written.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that tools are told."""
        return _TITLES[self]


_TITLES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}

STATES_BY_TITLE = {title: state for state, title in _TITLES.items()}

S = TransactionState

PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    S.EMPTY: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.ONGOING: frozenset({S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.ONGOING}),
    # A producer whose epoch grows may abort what it has not begun (KIP-890).
    S.PREPARE_ABORT: frozenset({S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: frozenset({S.PREPARE_COMMIT}),
    S.COMPLETE_ABORT: frozenset({S.PREPARE_ABORT}),
    S.DEAD: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_EPOCH_FENCE: frozenset({S.ONGOING}),
}
"""For each state, the states that it may be entered from."""

DECIDED = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""The decision is in the log, and markers are to be written."""

COMPLETE = frozenset({S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
"""All markers are written."""

AT_REST = PREVIOUS[S.DEAD]
"""No transaction is under way: another may begin, or the id may expire."""


class InvalidTransition(KreplicaError):
    """A transition that the table does not have: a mistake in the coordinator, never in its input."""


class Identity(NamedTuple):
    """By what a producer is known."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the next one needs another producer id."""
        return self.epoch >= EXHAUSTED_EPOCH


NO_IDENTITY = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id, as one record of the log has it.

    :param producer_id: with ``producer_epoch``, what records and markers of the transaction carry.
    :param last_epoch: the epoch before the last bump that its producer asked for, by which a retry is recognised; not
        in the log, so that it is -1 after another broker took over.
    :param previous_producer_id: the id before the present one, where that one's epochs were exhausted.
    :param next_identity: what the producer is known by once the transaction is complete, where that does not follow
        from the markers' identity: the epochs are exhausted, or the transaction was prepared by an earlier incarnation
        (KIP-939).
    :param client_version: 2 where its producer ended it and its epoch grew thereby (KIP-890), else 0.
    :param start_ms: when the transaction began, by the wall clock; -1 before the first.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = S.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIME
    start_ms: int = NO_TIME
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_identity: Identity = NO_IDENTITY
    client_version: int = 0

    @property
    def identity(self) -> Identity:
        """What records and markers carry."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def client_identity(self) -> Identity:
        """What the producer that may act is known by; older ones are fenced."""
        return self.identity if self.next_identity == NO_IDENTITY else self.next_identity

    @property
    def is_taken_over(self) -> bool:
        """Whether the transaction was prepared by an earlier incarnation: it can only be ended (KIP-939)."""
        return self.state is S.ONGOING and self.next_identity != NO_IDENTITY

    @property
    def is_committed(self) -> bool:
        """Which way a decided transaction was decided."""
        return self.state is S.PREPARE_COMMIT

    def moved(self, state: TransactionState, **changes: Any) -> Transaction:
        """The same in another state.

        :raise InvalidTransition: which the table does not have.
        """
        if self.state not in PREVIOUS[state]:
            raise InvalidTransition(f"{self.transactional_id}: {self.state.title} -> {state.title}")
        return replace(self, state=state, **changes)
