"""Transactions that only commit offsets, and the ending of transactions that another producer has prepared."""

from __future__ import annotations

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.coroutines import run
from kreplica.client_core import transaction_coordinator
from kreplica.client_core.offsets import GroupIdentity, GroupOffsets
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_coordinator import TransactionCoordinatorClient


def end_transaction(
    cluster: Cluster, transactional_id: str, identity: ProducerIdentity, *, commit: bool, timeout_s: float | None = None
) -> None:
    """Commit or abort a transaction of this or another producer; may be called repeatedly.

    :param identity: producer id and epoch of the producer that began the transaction.
    :raise BrokerRefused: the transaction has already ended with the other outcome, or the producer was fenced.
    """
    run(
        transaction_coordinator.end_transaction(
            cluster.core, transactional_id, identity, commit=commit, timeout_s=timeout_s
        )
    )


class Transactions:
    """Transactions of one transactional id that commit group offsets and contain no records.

    :param transaction_timeout_s: the coordinator aborts a transaction that is open for longer than this.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, transaction_timeout_s: float) -> None:
        self._client = TransactionCoordinatorClient(cluster.core, transactional_id, transaction_timeout_s)

    @property
    def identity(self) -> ProducerIdentity | None:
        """Producer id and epoch; None before ``initialize`` is called."""
        return self._client.identity

    @identity.setter
    def identity(self, identity: ProducerIdentity) -> None:
        self._client.identity = identity

    def initialize(self) -> ProducerIdentity:
        """Request a producer id and epoch; this fences earlier producers and aborts their open transaction.

        A repeated call requests the next epoch.
        """
        return run(self._client.initialize())

    def add_offsets(self, group: str, offsets: GroupOffsets, metadata: str = "") -> None:
        """Commit a group's offsets with the transaction.

        :param metadata: stored with offsets that have no metadata of their own.
        """
        run(self._client.add_offsets(offsets, GroupIdentity(group), metadata))

    def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction; send nothing if it is empty."""
        run(self._client.end(commit=commit))
        self._client.forget()
