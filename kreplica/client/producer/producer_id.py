"""Producer id of an idempotent producer without transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client_core.errors import ClientError
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_coordinator import new_producer_id
from kreplica.model import TopicPartition

log = Logger()


class IdempotentIdentity:
    """Producer id and epoch of an idempotent producer; the producer closes it.

    A request that fails with a retriable error is retried; after any other error, the next records fail.

    :param on_changed: called when the identity has been received or refused.
    """

    def __init__(self, cluster: Cluster, on_changed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_changed = on_changed
        self._identity: ProducerIdentity | None = None
        self._requesting: Deferred[None] | None = None
        self.error: ClientError | None = None

    def producer_id(self) -> ProducerIdentity | None:
        """Return the identity; None while it is being requested."""
        if self._identity is None and self._requesting is None:
            self.error = None
            requesting = self._requesting = Deferred.fromCoroutine(self._request())
            requesting.addBoth(self._requested)
        return self._identity

    def renew(self) -> None:
        """Request a new identity, because the epochs of the current one are exhausted."""
        self._identity = None

    def admit(self, partition: TopicPartition) -> bool:
        """Return True: without transactions, any partition may be written to."""
        return True

    def close(self) -> None:
        """Cancel the request for an identity."""
        if self._requesting is not None:
            self._requesting.cancel()

    async def _request(self) -> None:
        self._identity = await new_producer_id(self._cluster)

    def _requested(self, outcome: Failure | None) -> None:
        self._requesting = None
        if isinstance(outcome, Failure):
            if outcome.check(CancelledError):
                return
            error = outcome.value
            if not isinstance(error, ClientError):
                log.failure("cannot obtain a producer id", outcome)
                error = ClientError(f"no producer id: {error}")
            if not error.retriable:
                self.error = error
        self._on_changed()
