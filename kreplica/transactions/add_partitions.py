"""Decides whether partitions are added to a transaction, and verifies that they are in it. Pure functions."""

from __future__ import annotations

from collections.abc import Collection

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.transactions import fencing
from kreplica.transactions.decision_result import Decision, rejected
from kreplica.transactions.states import DECIDED, NO_IDENTITY, Identity, Transaction, TransactionState


def add(transaction: Transaction | None, claimed: Identity, added: Collection[TopicPartition], now_ms: int) -> Decision:
    """Decide an AddPartitionsToTxn or AddOffsetsToTxn; the first partition starts the transaction."""
    code = rejection(transaction, claimed)
    if transaction is None or code is not ErrorCode.NONE:
        return rejected(code)
    if transaction.is_taken_over:
        # Records of the prepared transaction carry a different producer id or epoch (KIP-939).
        return rejected(ErrorCode.INVALID_TXN_STATE)
    is_ongoing = transaction.state is TransactionState.ONGOING
    if is_ongoing and transaction.partitions.issuperset(added):
        return Decision()
    new = transaction.with_state(
        TransactionState.ONGOING,
        partitions=transaction.partitions.union(added) if is_ongoing else frozenset(added),
        last_update_ms=now_ms,
        start_ms=transaction.start_ms if is_ongoing else now_ms,
        next_identity=NO_IDENTITY,
        client_version=0,
    )
    return Decision(new=new)


def verify(
    transaction: Transaction | None, claimed: Identity, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return NONE for each partition that is in the producer's ongoing transaction, else the error (KIP-890)."""
    code = rejection(transaction, claimed)
    if transaction is None or code is not ErrorCode.NONE:
        return dict.fromkeys(partitions, code)
    return {key: _verify_partition(transaction, key) for key in partitions}


def rejection(transaction: Transaction | None, claimed: Identity) -> ErrorCode:
    """Return the error for a producer that may not use its transaction now, or NONE."""
    if transaction is None or not fencing.is_known_producer(transaction, claimed):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not fencing.is_current(transaction, claimed):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state in DECIDED else ErrorCode.NONE


def _verify_partition(transaction: Transaction, key: TopicPartition) -> ErrorCode:
    is_open = transaction.state is TransactionState.ONGOING and not transaction.is_taken_over
    return ErrorCode.NONE if is_open and key in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
