"""State of a transactional id and its valid transitions."""

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
"""Timestamp that is not set."""

NEVER_MS = 2**31 - 1
"""Timeout value of two-phase transactions, which never time out (KIP-939)."""

PRODUCER_EPOCH_MAX = 2**15 - 1
"""Epoch used only in markers. No producer receives it, so that the last regular epoch can be fenced."""

EXHAUSTED_EPOCH = PRODUCER_EPOCH_MAX - 1
"""Last epoch of a producer; the next identity is epoch 0 of a new producer id."""

BUMPS_EPOCH_VERSION_MIN = 2
"""First transaction version of clients whose epoch is bumped by each transaction (KIP-890)."""


class TransactionState(IntEnum):
    """State of a transactional id; values as in the log.

    * EMPTY: the producer has an identity but no transaction.
    * ONGOING: partitions were added.
    * PREPARE_*: the outcome is decided and markers are being written.
    * COMPLETE_*: all markers are written.
    * DEAD: the transactional id is removed once its tombstone is committed.
    * PREPARE_EPOCH_FENCE: about to be aborted because the producer is fenced; transient, never written.
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
        """Name as reported to clients."""
        return _TITLES[self]


_TITLES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}

STATES_BY_TITLE = {title: state for state, title in _TITLES.items()}

S = TransactionState

PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    S.EMPTY: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.ONGOING: frozenset({S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.ONGOING}),
    # A producer whose epoch is bumped by each transaction may abort one before adding partitions (KIP-890).
    S.PREPARE_ABORT: frozenset({S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: frozenset({S.PREPARE_COMMIT}),
    S.COMPLETE_ABORT: frozenset({S.PREPARE_ABORT}),
    S.DEAD: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_EPOCH_FENCE: frozenset({S.ONGOING}),
}
"""Valid previous states of each state."""

DECIDED = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""The outcome is in the log; the markers must be written."""

COMPLETE = frozenset({S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
"""All markers have been written."""

INACTIVE = PREVIOUS[S.DEAD]
"""No transaction is in progress: the next one may start, or the transactional id may expire."""


class InvalidTransition(KreplicaError):
    """A transition that ``PREVIOUS`` does not allow: a bug in the coordinator, never caused by input."""


class Identity(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """True if the next identity needs a new producer id."""
        return self.epoch >= EXHAUSTED_EPOCH


NO_IDENTITY = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    """State of one transactional id, as in one record of the log.

    :param producer_id: with ``producer_epoch``, the identity in records and markers of the transaction.
    :param last_epoch: epoch before the last bump that the producer requested, to recognize a retry; not in the log, so
        it is -1 after a change of coordinator.
    :param previous_producer_id: previous producer id, whose epochs were exhausted.
    :param next_identity: identity of the producer after completion, if it does not follow from the markers' identity
        because the epochs are exhausted or an earlier incarnation prepared the transaction (KIP-939).
    :param client_version: 2 if the client that ended the transaction bumps its epoch with each one (KIP-890), else 0.
    :param start_ms: start of the transaction by the wall clock; -1 before the first transaction.
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
        """Identity in records and markers."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def client_identity(self) -> Identity:
        """Identity of the current producer; older ones are fenced."""
        return self.identity if self.next_identity == NO_IDENTITY else self.next_identity

    @property
    def is_taken_over(self) -> bool:
        """True if an earlier incarnation prepared the transaction, so that it can only be ended (KIP-939)."""
        return self.state is S.ONGOING and self.next_identity != NO_IDENTITY

    @property
    def is_committed(self) -> bool:
        """True if the decision was to commit; valid only for decided transactions."""
        return self.state is S.PREPARE_COMMIT

    def with_state(self, state: TransactionState, **changes: Any) -> Transaction:
        """Return a copy in another state.

        :raise InvalidTransition: the transition is not valid.
        """
        if self.state not in PREVIOUS[state]:
            raise InvalidTransition(f"{self.transactional_id}: {self.state.title} -> {state.title}")
        return replace(self, state=state, **changes)
