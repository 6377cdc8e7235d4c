"""Writes the markers of decided transactions: one request at a time to each leader, with markers of many transactions.

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
from kreplica.transactions.marker_requests import Marker, Verdict, codes_of, markers_body
from kreplica.transactions.shard import TransactionShard
from kreplica.transactions.states import Transaction
from kreplica.wire.messages import WRITE_TXN_MARKERS

log = Logger()


@dataclass(frozen=True, slots=True)
class MarkersConfig:
    """Limits and delays.

    :param markers_per_request_max: maximum number of markers (one per transaction and partition) in a request.
    :param backoff_s: initial delay before a retry.
    :param backoff_s_max: maximum delay before a retry.
    :param gone_after_s: a partition that is missing for this long is considered deleted.
    """

    timeout_s: float = 30.0
    markers_per_request_max: int = 2000
    backoff_s: float = 0.1
    backoff_s_max: float = 2.0
    gone_after_s: float = 10.0


class _DecidedTransaction:
    """A decided transaction with missing markers.

    :ivar remaining: partitions without marker, each with the reactor time at which it was first found missing.
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

    :param connections: to all brokers, including this one.
    """

    def __init__(
        self, reactor: Reactor, view: ClusterView, connections: BrokerConnections, config: MarkersConfig | None = None
    ) -> None:
        self._reactor = reactor
        self._view = view
        self._connections = connections
        self._config = config or MarkersConfig()
        self._of_shard: dict[TransactionShard, dict[int, _DecidedTransaction]] = {}
        self._queues: dict[int, _BrokerQueue] = {}
        self._fresh: dict[Marker, _DecidedTransaction] = {}
        self._later: dict[Marker, _DecidedTransaction] = {}
        self._retry: IDelayedCall | None = None
        self._backoff_s = self._config.backoff_s
        self._soon: IDelayedCall | None = None
        self._is_stopped = False

    # --- from shards -------------------------------------------------------------------------------------------------

    def send(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Write a transaction's markers, then call the shard's ``markers_written``, unless the shard is forgotten.

        The callback never happens before this method has returned.
        """
        if self._is_stopped:
            return
        ending = _DecidedTransaction(shard, transaction)
        self._of_shard.setdefault(shard, {})[transaction.producer_id] = ending
        for key in ending.remaining:
            self._fresh[Marker(transaction.producer_id, key)] = ending
        if not ending.remaining:
            self._fresh[Marker(transaction.producer_id, _NO_PARTITION)] = ending
        self._write_soon()

    def forget(self, shard: TransactionShard) -> None:
        """Stop writing markers for a shard; the next coordinator continues."""
        self._of_shard.pop(shard, None)

    def stop(self) -> None:
        """Cancel all timers and requests."""
        self._is_stopped = True
        self._of_shard.clear()
        for timer in (self._soon, self._retry):
            if timer is not None and timer.active():
                timer.cancel()
        for queue in list(self._queues.values()):
            if queue.request is not None:
                queue.request.cancel()

    @property
    def count(self) -> int:
        """Number of transactions with missing markers."""
        return sum(len(endings) for endings in self._of_shard.values())

    # --- routing -----------------------------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Schedule a write, so that all transactions decided in this reactor iteration share requests."""
        if self._soon is None and not self._is_stopped:
            self._soon = self._reactor.callLater(0, self._write)

    def _write(self) -> None:
        self._soon = None
        fresh, self._fresh = self._fresh, {}
        complete: dict[int, _DecidedTransaction] = {}
        for marker, ending in fresh.items():
            if self._is_wanted(ending):
                self._route(marker, ending)
                if not ending.remaining:
                    complete[marker.producer_id] = ending
        for broker_id, queue in list(self._queues.items()):
            if queue.request is None:
                self._ask(broker_id, queue)
        self._schedule_retry()
        self._completed(complete.values())

    def _route(self, marker: Marker, ending: _DecidedTransaction) -> None:
        """Queue a marker for the leader of its partition, or for a retry if there is no leader."""
        key = marker.key
        if key not in ending.remaining:
            return
        leader = self._view.leader_of(key)
        if leader is not None:
            ending.remaining[key] = None
            self._queues.setdefault(leader, _BrokerQueue()).markers[marker] = ending
        elif self._is_gone(ending, key):
            log.warn(
                "no marker of {transactional_id!r} for {key}: the partition was deleted",
                key=str(key),
                transactional_id=ending.transaction.transactional_id,
            )
            del ending.remaining[key]
        else:
            self._later[marker] = ending

    def _is_gone(self, ending: _DecidedTransaction, key: TopicPartition) -> bool:
        if not marker_requests.is_missing(self._view, key):
            ending.remaining[key] = None
            return False
        now_s = self._reactor.seconds()
        since_s = ending.remaining[key]
        if since_s is None:
            ending.remaining[key] = since_s = now_s
        return now_s - since_s >= self._config.gone_after_s

    def _schedule_retry(self) -> None:
        if self._later and self._retry is None and not self._is_stopped:
            self._retry = self._reactor.callLater(self._backoff_s, self._write_later)
            self._backoff_s = min(self._backoff_s * 2, self._config.backoff_s_max)

    def _write_later(self) -> None:
        self._retry = None
        self._fresh.update(self._later)
        self._later.clear()
        self._write_soon()

    # --- requests to one broker --------------------------------------------------------------------------------------

    def _ask(self, broker_id: int, queue: _BrokerQueue) -> None:
        """Send the next request to a broker that has no request in flight."""
        batch = self._take(queue)
        if not batch:
            del self._queues[broker_id]
            return
        queue.request = Deferred.fromCoroutine(self._request(broker_id, batch))
        queue.request.addErrback(_request_ended).addCallback(self._response_handled, broker_id, queue)

    def _take(self, queue: _BrokerQueue) -> dict[Marker, _DecidedTransaction]:
        wanted: dict[Marker, _DecidedTransaction] = {}
        while queue.markers and not wanted:
            taken = dict(islice(queue.markers.items(), self._config.markers_per_request_max))
            for marker in taken:
                del queue.markers[marker]
            wanted = {marker: ending for marker, ending in taken.items() if self._is_wanted(ending)}
        return wanted

    async def _request(self, broker_id: int, batch: dict[Marker, _DecidedTransaction]) -> None:
        partitions: dict[int, list[TopicPartition]] = {}
        for marker in batch:
            partitions.setdefault(marker.producer_id, []).append(marker.key)
        endings = {marker.producer_id: ending for marker, ending in batch.items()}
        body = markers_body(
            (ending.transaction, ending.shard.epoch, frozenset(partitions[producer_id]))
            for producer_id, ending in endings.items()
        )
        try:
            answer: dict[str, Any] = await self._connections.request(
                broker_id, WRITE_TXN_MARKERS, body, timeout_s=self._config.timeout_s
            )
        except ClientError as error:
            log.debug("markers for broker {broker}: {error}", broker=broker_id, error=str(error))
            codes: dict[Marker, ErrorCode] = {}
        except CancelledError:
            raise
        except Exception:
            # Retry after any error: without its markers the transaction would stay open.
            log.failure("cannot write transaction markers")
            codes = {}
        else:
            codes = codes_of(answer)
        self._answered(batch, codes)

    def _response_handled(self, _: None, broker_id: int, queue: _BrokerQueue) -> None:
        queue.request = None
        if not self._is_stopped:
            self._ask(broker_id, queue)
            self._schedule_retry()

    # --- responses ---------------------------------------------------------------------------------------------------

    def _answered(self, batch: dict[Marker, _DecidedTransaction], codes: dict[Marker, ErrorCode]) -> None:
        complete: dict[int, _DecidedTransaction] = {}
        for marker, ending in batch.items():
            if not self._is_wanted(ending):
                continue
            code = codes.get(marker, ErrorCode.REQUEST_TIMED_OUT)
            verdict = marker_requests.verdict_of(code)
            if verdict is Verdict.LATER:
                self._later[marker] = ending
                continue
            self._backoff_s = self._config.backoff_s
            if verdict is Verdict.FENCED:
                self._give_up(ending, marker.key)
                continue
            if code is not ErrorCode.NONE:
                log.warn("{key} does not accept a marker: {code}", key=str(marker.key), code=code.name)
            ending.remaining.pop(marker.key, None)
            if not ending.remaining:
                complete[marker.producer_id] = ending
        self._completed(complete.values())

    def _give_up(self, ending: _DecidedTransaction, key: TopicPartition) -> None:
        log.warn(
            "{key} has a marker of a later coordinator of {transactional_id!r}, which ends the transaction",
            key=str(key),
            transactional_id=ending.transaction.transactional_id,
        )
        del self._of_shard[ending.shard][ending.transaction.producer_id]

    def _completed(self, endings: Iterable[_DecidedTransaction]) -> None:
        for ending in endings:
            if self._is_wanted(ending):
                del self._of_shard[ending.shard][ending.transaction.producer_id]
                ending.shard.markers_written(ending.transaction)

    def _is_wanted(self, ending: _DecidedTransaction) -> bool:
        """Return True if the shard is not forgotten and no newer transaction of the producer has replaced this one."""
        return self._of_shard.get(ending.shard, {}).get(ending.transaction.producer_id) is ending


_NO_PARTITION = TopicPartition("", -1)
"""Placeholder for a transaction without partitions."""


def _request_ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("cannot write transaction markers", failure)
