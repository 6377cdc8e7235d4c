"""Who a producer without transactions is: the id by which leaders recognize its batches (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client_core.errors import ClientError
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_requests import INIT_MAX, init_body, parse_identity
from kreplica.model import TopicPartition
from kreplica.wire.messages import INIT_PRODUCER_ID

log = Logger()


class IdempotentPapers:
    """The papers of an idempotent producer's batches; owned by the producer, which closes them.

    An id that is not to be had at the moment is asked for again and again; one that is refused fails what is sent next.

    :param came: is called when it is known, or refused.
    """

    def __init__(self, cluster: Cluster, came: Callable[[], None]) -> None:
        self._cluster = cluster
        self._came = came
        self._identity: ProducerIdentity | None = None
        self._asking: Deferred[None] | None = None
        self.error: ClientError | None = None

    def identity(self) -> ProducerIdentity | None:
        """The producer's; None as long as it is not known, which is asked for then."""
        if self._identity is None and self._asking is None:
            self._ask()
        return self._identity

    def renew(self) -> None:
        """The identity is used up: another one is needed."""
        self._identity = None

    def admit(self, partition: TopicPartition) -> bool:
        """All may go."""
        return True

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> None:
        self.error = None
        asking = self._asking = Deferred.fromCoroutine(self._initialize())
        asking.addBoth(self._asked)

    async def _initialize(self) -> None:
        async def attempt() -> ProducerIdentity:
            answer = await self._cluster.ask(INIT_PRODUCER_ID, init_body(None, 0), at_most=INIT_MAX)
            return parse_identity(answer, "producer id")

        self._identity = await self._cluster.retrying(attempt)

    def _asked(self, outcome: Failure | None) -> None:
        self._asking = None
        if isinstance(outcome, Failure):
            if outcome.check(CancelledError):
                return
            error = outcome.value
            if not isinstance(error, ClientError):
                log.failure("asking for a producer id", outcome)
                error = ClientError(f"no producer id: {error}")
            if not error.retriable:
                self.error = error
        self._came()
