"""Asks transaction coordinators, on behalf of partition leaders, if partitions are in a transaction (KIP-890).

Verifications from the same reactor iteration are sent in one request per coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.errors import ClientError, UnsupportedVersion
from kreplica.cluster.topic_names import TRANSACTION_STATE
from kreplica.coordination import BrokerConnections, ClusterView, partition_of
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.wire.messages import ADD_PARTITIONS_TO_TXN

log = Logger()

Codes = Mapping[TopicPartition, ErrorCode]
AtEndOfIteration = Callable[[Callable[[], object]], None]


class VerificationRequest(NamedTuple):
    """Partitions to verify in one producer's transaction, or to add to it.

    :param keys: partitions; at least one.
    :param adds: True to add the partitions to the transaction, which may start it; False to verify them only.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    keys: tuple[TopicPartition, ...]
    adds: bool


OnVerified = Callable[[Codes], None]


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """Limits and delays of verifications.

    :param timeout_s: request timeout.
    :param pending_max: maximum number of pending verifications; further ones are rejected.
    :param per_request_max: maximum number of verifications in a request.
    :param requests_max: maximum number of requests in flight per coordinator.
    :param retry_s: delay before a verification is retried because the previous transaction is being completed.
    :param retries_max: maximum number of such retries.
    """

    timeout_s: float = 10.0
    pending_max: int = 20_000
    per_request_max: int = 500
    requests_max: int = 8
    retry_s: float = 0.02
    retries_max: int = 5


class _PendingVerification:
    """A pending verification and its callback."""

    __slots__ = ("on_verified", "request", "retries_left")

    def __init__(self, request: VerificationRequest, on_verified: OnVerified, retries_left: int) -> None:
        self.request = request
        self.on_verified = on_verified
        self.retries_left = retries_left


class _CoordinatorQueue:
    """Verifications that wait for one coordinator, and its requests in flight."""

    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_PendingVerification] = []
        self.in_flight: dict[Deferred[None], None] = {}


_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator's metadata may be outdated and not contain this topic, or another one in the request, yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def rejection_of(code: ErrorCode, *, adds: bool, knows_abortable: bool) -> ErrorCode:
    """Return the error to send to a producer whose batch waited for a failed verification.

    Producers do not expect coordinator errors from partition leaders. NOT_ENOUGH_REPLICAS makes every client retry the
    batch without a metadata request.

    :param adds: True if the request adds the partition; such producers understand CONCURRENT_TRANSACTIONS.
    :param knows_abortable: True if the client supports TRANSACTION_ABORTABLE.
    """
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Verifier:
    """Sends the verifications of one broker.

    :param connections: connections to all brokers, including this one.
    :param at_end_of_iteration: schedules a callback after the requests of this reactor iteration.
    """

    def __init__(
        self,
        reactor: Reactor,
        view: ClusterView,
        connections: BrokerConnections,
        at_end_of_iteration: AtEndOfIteration,
        config: VerifierConfig | None = None,
    ) -> None:
        self._reactor = reactor
        self._view = view
        self._connections = connections
        self._at_end_of_iteration = at_end_of_iteration
        self._config = config or VerifierConfig()
        self._gathered: list[_PendingVerification] = []
        self._rejected: list[_PendingVerification] = []
        self._queues: dict[int, _CoordinatorQueue] = {}
        self._delayed: list[_PendingVerification] = []
        self._retry: IDelayedCall | None = None
        self._count = 0
        self._is_scheduled = False
        self._is_stopped = False

    def verify(self, request: VerificationRequest, on_verified: OnVerified) -> None:
        """Verify or add partitions.

        :param on_verified: called exactly once, never before this method has returned, with a code for each partition.
            NONE: the partition is in the transaction. COORDINATOR_NOT_AVAILABLE: no coordinator is known, or too many
            verifications are pending. NETWORK_EXCEPTION: no response. Any other code: the coordinator's error.
        """
        pending = _PendingVerification(request, on_verified, self._config.retries_max)
        if self._is_stopped or self._count >= self._config.pending_max:
            self._rejected.append(pending)
        else:
            self._gathered.append(pending)
        self._count += 1
        self._schedule()

    def stop(self) -> None:
        """Cancel all timers and requests, and complete pending verifications with NETWORK_EXCEPTION."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        waiting = [*self._gathered, *self._delayed]
        self._gathered, self._delayed = [], []
        for queue in self._queues.values():
            waiting += queue.waiting
            queue.waiting = []
            for request in list(queue.in_flight):
                request.cancel()
        for pending in waiting:
            self._finish_all(pending, ErrorCode.NETWORK_EXCEPTION)

    # --- routing -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._at_end_of_iteration(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        rejected, self._rejected = self._rejected, []
        gathered, self._gathered = self._gathered, []
        for pending in gathered:
            coordinator = self._coordinator_of(pending.request.transactional_id)
            if coordinator is None:
                rejected.append(pending)
            else:
                self._queues.setdefault(coordinator, _CoordinatorQueue()).waiting.append(pending)
        for broker_id, queue in list(self._queues.items()):
            self._send_requests(broker_id, queue)
        for pending in rejected:
            self._finish_all(pending, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        count = self._view.partition_count(TRANSACTION_STATE)
        if not count:
            return None
        return self._view.leader_of(TopicPartition(TRANSACTION_STATE, partition_of(transactional_id, count)))

    # --- requests to one coordinator ---------------------------------------------------------------------------------

    def _send_requests(self, broker_id: int, queue: _CoordinatorQueue) -> None:
        while queue.waiting and len(queue.in_flight) < self._config.requests_max:
            batch, queue.waiting = _split_batch(queue.waiting, self._config.per_request_max)
            request = Deferred.fromCoroutine(self._request(broker_id, batch))
            queue.in_flight[request] = None
            request.addErrback(_log_request_failure).addCallback(self._request_done, broker_id, queue, request)
        if not queue.in_flight:
            self._queues.pop(broker_id, None)

    def _request_done(self, _: None, broker_id: int, queue: _CoordinatorQueue, request: Deferred[None]) -> None:
        del queue.in_flight[request]
        if not self._is_stopped:
            self._send_requests(broker_id, queue)

    async def _request(self, broker_id: int, batch: list[_PendingVerification]) -> None:
        body = {"transactions": _transactions(pending.request for pending in batch)}
        try:
            response = await self._connections.request(
                broker_id, ADD_PARTITIONS_TO_TXN, body, timeout_s=self._config.timeout_s
            )
        except UnsupportedVersion:
            self._handle_unsupported(batch)
        except ClientError as error:
            log.debug("no response from coordinator {broker}: {error}", broker=broker_id, error=str(error))
            for pending in batch:
                self._finish_all(pending, ErrorCode.NETWORK_EXCEPTION)
        except CancelledError:
            for pending in batch:
                self._finish_all(pending, ErrorCode.NETWORK_EXCEPTION)
            raise
        else:
            self._handle_response(batch, response)

    # --- responses ---------------------------------------------------------------------------------------------------

    def _handle_response(self, batch: list[_PendingVerification], response: dict[str, Any]) -> None:
        if "results_by_transaction" not in response:
            self._handle_unsupported(batch)
            return
        top = ErrorCode.of(response["error_code"])
        found = _codes(response)
        for pending in batch:
            request = pending.request
            missing = top if top is not ErrorCode.NONE else ErrorCode.NETWORK_EXCEPTION
            of_id = found.get(request.transactional_id, {})
            codes = {key: of_id.get(key, missing) for key in request.keys}
            if request.adds and pending.retries_left and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
                self._retry_later(pending)
            else:
                self._finish(pending, codes)

    def _handle_unsupported(self, batch: list[_PendingVerification]) -> None:
        """Handle a coordinator without KIP-890: accept the partitions unverified, and refuse to add partitions."""
        for pending in batch:
            adds = pending.request.adds
            self._finish_all(pending, ErrorCode.COORDINATOR_NOT_AVAILABLE if adds else ErrorCode.NONE)

    def _retry_later(self, pending: _PendingVerification) -> None:
        """Retry a verification after a short delay, because the previous transaction is being completed."""
        if self._is_stopped:
            self._finish_all(pending, ErrorCode.NETWORK_EXCEPTION)
            return
        pending.retries_left -= 1
        self._delayed.append(pending)
        if self._retry is None:
            self._retry = self._reactor.callLater(self._config.retry_s, self._send_delayed)

    def _send_delayed(self) -> None:
        self._retry = None
        self._gathered += self._delayed
        self._delayed = []
        self._schedule()

    def _finish_all(self, pending: _PendingVerification, code: ErrorCode) -> None:
        self._finish(pending, dict.fromkeys(pending.request.keys, code))

    def _finish(self, pending: _PendingVerification, codes: Codes) -> None:
        self._count -= 1
        try:
            pending.on_verified(codes)
        except Exception:
            log.failure("the callback of {verification!r} failed", verification=pending.request)


def _split_batch(
    queue: list[_PendingVerification], count_max: int
) -> tuple[list[_PendingVerification], list[_PendingVerification]]:
    """Split the queue into the next request and the rest; a transactional id occurs only once per request."""
    selected: dict[str, _PendingVerification] = {}
    remaining: list[_PendingVerification] = []
    for pending in queue:
        transactional_id = pending.request.transactional_id
        if transactional_id in selected or len(selected) >= count_max:
            remaining.append(pending)
        else:
            selected[transactional_id] = pending
    return list(selected.values()), remaining


def _transactions(requests: Iterable[VerificationRequest]) -> list[dict[str, Any]]:
    rows = []
    for request in requests:
        topics: dict[str, list[int]] = {}
        for key in request.keys:
            topics.setdefault(key.topic, []).append(key.partition)
        rows.append(
            {
                "transactional_id": request.transactional_id,
                "producer_id": request.producer_id,
                "producer_epoch": request.producer_epoch,
                "verify_only": not request.adds,
                "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
            }
        )
    return rows


def _codes(response: dict[str, Any]) -> dict[str, dict[TopicPartition, ErrorCode]]:
    return {
        row["transactional_id"]: {
            TopicPartition(topic["name"], partition["partition_index"]): ErrorCode.of(partition["partition_error_code"])
            for topic in row["topic_results"]
            for partition in topic["results_by_partition"]
        }
        for row in response["results_by_transaction"]
    }


def _log_request_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("request to a transaction coordinator failed", failure)
