"""Writes the markers of decided transactions: one request at a time per leader, with markers of many transactions.

Each marker is retried until the leader of its partition has written it or the partition is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.errors import ClientError
from kreplica.coordination import BrokerConnections, ClusterView
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.transactions import marker_requests
from kreplica.transactions.marker_requests import Marker, MarkerOutcome, codes_of, markers_body
from kreplica.transactions.shard import TransactionShard
from kreplica.transactions.states import Transaction
from kreplica.wire.messages import WRITE_TXN_MARKERS

log = Logger()


@dataclass(frozen=True, slots=True)
class MarkersConfig:
    """Limits and delays of marker requests.

    :param markers_per_request_max: maximum number of markers (one per transaction and partition) in a request.
    :param backoff_s: initial delay before a retry.
    :param backoff_s_max: maximum delay before a retry.
    :param deleted_after_s: a partition that is missing for this long is considered deleted.
    """

    timeout_s: float = 30.0
    markers_per_request_max: int = 2000
    backoff_s: float = 0.1
    backoff_s_max: float = 2.0
    deleted_after_s: float = 10.0


class _DecidedTransaction:
    """A decided transaction with missing markers.

    :ivar remaining: partitions whose marker has not been written yet. The value is the reactor time since which the
        partition has been missing from the metadata, or None.
    """

    __slots__ = ("remaining", "shard", "transaction")

    def __init__(self, shard: TransactionShard, transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction
        self.remaining: dict[TopicPartition, float | None] = dict.fromkeys(sorted(transaction.partitions))


class _BrokerQueue:
    """Queue of markers for one broker, and the request in flight."""

    __slots__ = ("markers", "request")

    def __init__(self) -> None:
        self.markers: dict[Marker, _DecidedTransaction] = {}
        self.request: Deferred[None] | None = None


class Markers:
    """Markers of all shards; owned by the coordinator.

    :param connections: connections to all brokers, including this one.
    """

    def __init__(
        self, reactor: Reactor, view: ClusterView, connections: BrokerConnections, config: MarkersConfig | None = None
    ) -> None:
        self._reactor = reactor
        self._view = view
        self._connections = connections
        self._config = config or MarkersConfig()
        self._by_shard: dict[TransactionShard, dict[int, _DecidedTransaction]] = {}
        self._queues: dict[int, _BrokerQueue] = {}
        self._new: dict[Marker, _DecidedTransaction] = {}
        self._delayed: dict[Marker, _DecidedTransaction] = {}
        self._retry: IDelayedCall | None = None
        self._backoff_s = self._config.backoff_s
        self._write_call: IDelayedCall | None = None
        self._is_stopped = False

    # --- from shards -------------------------------------------------------------------------------------------------

    def send(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Write a transaction's markers, then call the shard's ``markers_written`` unless the shard was forgotten.

        ``markers_written`` is never called before this method has returned.
        """
        if self._is_stopped:
            return
        decided = _DecidedTransaction(shard, transaction)
        self._by_shard.setdefault(shard, {})[transaction.producer_id] = decided
        for key in decided.remaining:
            self._new[Marker(transaction.producer_id, key)] = decided
        if not decided.remaining:
            self._new[Marker(transaction.producer_id, _NO_PARTITION)] = decided
        self._write_soon()

    def forget(self, shard: TransactionShard) -> None:
        """Stop writing markers for a shard; the next coordinator writes the rest."""
        self._by_shard.pop(shard, None)

    def stop(self) -> None:
        """Cancel all timers and requests."""
        self._is_stopped = True
        self._by_shard.clear()
        for timer in (self._write_call, self._retry):
            if timer is not None and timer.active():
                timer.cancel()
        for queue in list(self._queues.values()):
            if queue.request is not None:
                queue.request.cancel()

    @property
    def count(self) -> int:
        """Number of transactions with missing markers."""
        return sum(len(endings) for endings in self._by_shard.values())

    # --- routing -----------------------------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Schedule a write, so that all transactions decided in this reactor iteration share requests."""
        if self._write_call is None and not self._is_stopped:
            self._write_call = self._reactor.callLater(0, self._write)

    def _write(self) -> None:
        self._write_call = None
        new, self._new = self._new, {}
        complete: dict[int, _DecidedTransaction] = {}
        for marker, decided in new.items():
            if self._is_wanted(decided):
                self._route(marker, decided)
                if not decided.remaining:
                    complete[marker.producer_id] = decided
        for broker_id, queue in list(self._queues.items()):
            if queue.request is None:
                self._send_next(broker_id, queue)
        self._schedule_retry()
        self._completed(complete.values())

    def _route(self, marker: Marker, decided: _DecidedTransaction) -> None:
        """Queue a marker for the leader of its partition, or for a retry if there is no leader."""
        key = marker.key
        if key not in decided.remaining:
            return
        leader = self._view.leader_of(key)
        if leader is not None:
            decided.remaining[key] = None
            self._queues.setdefault(leader, _BrokerQueue()).markers[marker] = decided
        elif self._is_deleted(decided, key):
            log.warn(
                "no marker for {transactional_id!r} was written to {key}: the partition was deleted",
                key=str(key),
                transactional_id=decided.transaction.transactional_id,
            )
            del decided.remaining[key]
        else:
            self._delayed[marker] = decided

    def _is_deleted(self, decided: _DecidedTransaction, key: TopicPartition) -> bool:
        if not marker_requests.is_missing(self._view, key):
            decided.remaining[key] = None
            return False
        now_s = self._reactor.seconds()
        since_s = decided.remaining[key]
        if since_s is None:
            decided.remaining[key] = since_s = now_s
        return now_s - since_s >= self._config.deleted_after_s

    def _schedule_retry(self) -> None:
        if self._delayed and self._retry is None and not self._is_stopped:
            self._retry = self._reactor.callLater(self._backoff_s, self._write_delayed)
            self._backoff_s = min(self._backoff_s * 2, self._config.backoff_s_max)

    def _write_delayed(self) -> None:
        self._retry = None
        self._new.update(self._delayed)
        self._delayed.clear()
        self._write_soon()

    # --- requests to one broker --------------------------------------------------------------------------------------

    def _send_next(self, broker_id: int, queue: _BrokerQueue) -> None:
        """Send the next request to a broker that has no request in flight."""
        batch = self._take(queue)
        if not batch:
            del self._queues[broker_id]
            return
        queue.request = Deferred.fromCoroutine(self._request(broker_id, batch))
        queue.request.addErrback(_log_request_failure).addCallback(self._response_handled, broker_id, queue)

    def _take(self, queue: _BrokerQueue) -> dict[Marker, _DecidedTransaction]:
        batch: dict[Marker, _DecidedTransaction] = {}
        while queue.markers and not batch:
            queued = dict(islice(queue.markers.items(), self._config.markers_per_request_max))
            for marker in queued:
                del queue.markers[marker]
            batch = {marker: decided for marker, decided in queued.items() if self._is_wanted(decided)}
        return batch

    async def _request(self, broker_id: int, batch: dict[Marker, _DecidedTransaction]) -> None:
        partitions: dict[int, list[TopicPartition]] = {}
        for marker in batch:
            partitions.setdefault(marker.producer_id, []).append(marker.key)
        endings = {marker.producer_id: decided for marker, decided in batch.items()}
        body = markers_body(
            (decided.transaction, decided.shard.epoch, frozenset(partitions[producer_id]))
            for producer_id, decided in endings.items()
        )
        try:
            response: dict[str, Any] = await self._connections.request(
                broker_id, WRITE_TXN_MARKERS, body, timeout_s=self._config.timeout_s
            )
        except ClientError as error:
            log.debug("writing markers on broker {broker} failed: {error}", broker=broker_id, error=str(error))
            codes: dict[Marker, ErrorCode] = {}
        except CancelledError:
            raise
        except Exception:
            # Retry after any error: without its markers, the transaction would stay open.
            log.failure("cannot write transaction markers")
            codes = {}
        else:
            codes = codes_of(response)
        self._handle_results(batch, codes)

    def _response_handled(self, _: None, broker_id: int, queue: _BrokerQueue) -> None:
        queue.request = None
        if not self._is_stopped:
            self._send_next(broker_id, queue)
            self._schedule_retry()

    # --- responses ---------------------------------------------------------------------------------------------------

    def _handle_results(self, batch: dict[Marker, _DecidedTransaction], codes: dict[Marker, ErrorCode]) -> None:
        complete: dict[int, _DecidedTransaction] = {}
        for marker, decided in batch.items():
            if not self._is_wanted(decided):
                continue
            code = codes.get(marker, ErrorCode.REQUEST_TIMED_OUT)
            outcome = marker_requests.outcome_of(code)
            if outcome is MarkerOutcome.RETRY:
                self._delayed[marker] = decided
                continue
            self._backoff_s = self._config.backoff_s
            if outcome is MarkerOutcome.FENCED:
                self._drop_fenced(decided, marker.key)
                continue
            if code is not ErrorCode.NONE:
                log.warn("{key} does not accept a marker: {code}", key=str(marker.key), code=code.name)
            decided.remaining.pop(marker.key, None)
            if not decided.remaining:
                complete[marker.producer_id] = decided
        self._completed(complete.values())

    def _drop_fenced(self, decided: _DecidedTransaction, key: TopicPartition) -> None:
        log.warn(
            "{key} has a marker from a later coordinator of {transactional_id!r}, which ends the transaction",
            key=str(key),
            transactional_id=decided.transaction.transactional_id,
        )
        del self._by_shard[decided.shard][decided.transaction.producer_id]

    def _completed(self, endings: Iterable[_DecidedTransaction]) -> None:
        for decided in endings:
            if self._is_wanted(decided):
                del self._by_shard[decided.shard][decided.transaction.producer_id]
                decided.shard.markers_written(decided.transaction)

    def _is_wanted(self, decided: _DecidedTransaction) -> bool:
        """Return False if the shard was forgotten or a newer transaction of the producer has replaced this one."""
        return self._by_shard.get(decided.shard, {}).get(decided.transaction.producer_id) is decided


_NO_PARTITION = TopicPartition("", -1)
"""Placeholder key for a transaction without partitions."""


def _log_request_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("cannot write transaction markers", failure)
