"""Transactions of the Twisted producer: partitions are added in the background, so that ``send`` does not wait."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client_core.errors import ClientError
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transactions import TransactionCore
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause

log = Logger()


class Transactions(TransactionCore):
    """Provides the producer id and epoch of batches and adds their partitions to the transaction.

    The producer that owns it closes it.

    :param on_changed: called when partitions have been added, or after an error that prevents sending.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_s: float, on_changed: Callable[[], None]
    ) -> None:
        super().__init__(cluster, transactional_id, timeout_s)
        self._reactor = cluster.runtime.reactor
        self._on_changed = on_changed
        self._to_add: dict[TopicPartition, None] = {}
        self._adding: Deferred[None] | None = None

    def producer_id(self) -> ProducerIdentity | None:
        """Return the producer's identity; it is not None once the first transaction has begun."""
        return self.identity

    def renew(self) -> None:
        """Keep the identity: sequence numbers cannot restart within a transaction."""

    def admit(self, partition: TopicPartition) -> bool:
        """Return True if a partition belongs to the transaction; otherwise start adding it."""
        if partition in self._partitions:
            return True
        self._to_add[partition] = None
        if self._adding is None:
            self._adding = Deferred.fromCoroutine(self._add_wanted())
            self._adding.addBoth(self._added)
        return False

    def fail(self, error: ClientError) -> None:
        """Record that part of the transaction was not written, so that the transaction can only be aborted."""
        super().fail(error)
        self._on_changed()

    def _fenced(self, error: ClientError) -> None:
        super()._fenced(error)
        self._on_changed()

    def forget(self) -> None:
        """Reset the state of the current transaction."""
        super().forget()
        self._to_add.clear()

    def close(self, error: ClientError) -> None:
        """Stop sending requests; later operations fail with ``error``."""
        self.unusable = error
        if self._adding is not None:
            self._adding.cancel()

    async def _add_wanted(self) -> None:
        """Add all partitions requested in this reactor iteration with one request."""
        await pause(self._reactor, 0)
        while self._to_add and self.error is None:
            partitions = list(self._to_add)
            self._to_add.clear()
            await self.add_partitions(partitions)
            self._on_changed()

    def _added(self, outcome: Failure | None) -> None:
        self._adding = None
        if not isinstance(outcome, Failure) or outcome.check(CancelledError):
            return
        error = outcome.value
        if not isinstance(error, ClientError):
            log.failure("cannot add partitions to transaction {name}", outcome, name=self.transactional_id)
            error = ClientError(str(error))
        self._to_add.clear()
        self.fail(error)
