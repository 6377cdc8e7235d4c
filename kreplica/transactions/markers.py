"""Writes the markers of decided transactions: one request after the other to each leader, of many transactions each.

A marker is written until the partition's leader has it, wherever that leads, or the partition is gone.  Of decisions
it knows nothing: what it is given is in the log.
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
    """:param markers_per_request_max: markers, one for each transaction and partition, of one request.
    :param backoff_s: after so long what could not be written is tried again, ...
    :param backoff_s_max: ... and at most after so long, where nothing can be written.
    :param gone_after_s: a partition that was missing for so long is gone.
    """

    timeout_s: float = 30.0
    markers_per_request_max: int = 2000
    backoff_s: float = 0.1
    backoff_s_max: float = 2.0
    gone_after_s: float = 10.0


class _Ending:
    """A transaction some of whose markers are not written yet.

    :ivar remaining: the partitions that lack theirs, each with when it was first found missing, by the reactor's clock.
    """

    __slots__ = ("remaining", "shard", "transaction")

    def __init__(self, shard: TransactionShard, transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction
        self.remaining: dict[TopicPartition, float | None] = dict.fromkeys(sorted(transaction.partitions))


class _Way:
    """What one broker is to be told, and whether it is being told something."""

    __slots__ = ("asking", "queue")

    def __init__(self) -> None:
        self.queue: dict[Marker, _Ending] = {}
        self.asking: Deferred[None] | None = None


class Markers:
    """Owned by the coordinator, for all of its shards.

    :param connections: to all brokers, this one among them.
    """

    def __init__(
        self, reactor: Reactor, view: ClusterView, connections: BrokerConnections, config: MarkersConfig | None = None
    ) -> None:
        self._reactor = reactor
        self._view = view
        self._connections = connections
        self._config = config or MarkersConfig()
        self._of_shard: dict[TransactionShard, dict[int, _Ending]] = {}
        self._ways: dict[int, _Way] = {}
        self._fresh: dict[Marker, _Ending] = {}
        self._later: dict[Marker, _Ending] = {}
        self._retry: IDelayedCall | None = None
        self._backoff_s = self._config.backoff_s
        self._soon: IDelayedCall | None = None
        self._is_stopped = False

    # --- from shards -------------------------------------------------------------------------------------------------

    def send(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Write a decided transaction's markers; the shard's ``markers_written`` follows, unless it is forgotten.

        Never calls back before this has returned.
        """
        if self._is_stopped:
            return
        ending = _Ending(shard, transaction)
        self._of_shard.setdefault(shard, {})[transaction.producer_id] = ending
        for key in ending.remaining:
            self._fresh[Marker(transaction.producer_id, key)] = ending
        if not ending.remaining:
            self._fresh[Marker(transaction.producer_id, _NOWHERE)] = ending
        self._write_soon()

    def forget(self, shard: TransactionShard) -> None:
        """Write no more markers for a shard: another broker goes on with them."""
        self._of_shard.pop(shard, None)

    def stop(self) -> None:
        """The broker stops: leave no timer and no request behind."""
        self._is_stopped = True
        self._of_shard.clear()
        for timer in (self._soon, self._retry):
            if timer is not None and timer.active():
                timer.cancel()
        for way in list(self._ways.values()):
            if way.asking is not None:
                way.asking.cancel()

    @property
    def count(self) -> int:
        """How many transactions wait for markers."""
        return sum(len(endings) for endings in self._of_shard.values())

    # --- to whom -----------------------------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """What is decided in one turn leaves together."""
        if self._soon is None and not self._is_stopped:
            self._soon = self._reactor.callLater(0, self._write)

    def _write(self) -> None:
        self._soon = None
        fresh, self._fresh = self._fresh, {}
        complete: dict[int, _Ending] = {}
        for marker, ending in fresh.items():
            if self._is_wanted(ending):
                self._route(marker, ending)
                if not ending.remaining:
                    complete[marker.producer_id] = ending
        for way_to, way in list(self._ways.items()):
            if way.asking is None:
                self._ask(way_to, way)
        self._try_later()
        self._completed(complete.values())

    def _route(self, marker: Marker, ending: _Ending) -> None:
        """Queue a marker for the leader of its partition, or for later where there is none."""
        key = marker.key
        if key not in ending.remaining:
            return
        leader = self._view.leader_of(key)
        if leader is not None:
            ending.remaining[key] = None
            self._ways.setdefault(leader, _Way()).queue[marker] = ending
        elif self._is_gone(ending, key):
            log.warn(
                "{key} is gone, and with it what {transactional_id!r} wrote to it",
                key=str(key),
                transactional_id=ending.transaction.transactional_id,
            )
            del ending.remaining[key]
        else:
            self._later[marker] = ending

    def _is_gone(self, ending: _Ending, key: TopicPartition) -> bool:
        if not marker_requests.is_missing(self._view, key):
            ending.remaining[key] = None
            return False
        now_s = self._reactor.seconds()
        since_s = ending.remaining[key]
        if since_s is None:
            ending.remaining[key] = since_s = now_s
        return now_s - since_s >= self._config.gone_after_s

    def _try_later(self) -> None:
        if self._later and self._retry is None and not self._is_stopped:
            self._retry = self._reactor.callLater(self._backoff_s, self._write_later)
            self._backoff_s = min(self._backoff_s * 2, self._config.backoff_s_max)

    def _write_later(self) -> None:
        self._retry = None
        self._fresh.update(self._later)
        self._later.clear()
        self._write_soon()

    # --- to one broker -----------------------------------------------------------------------------------------------

    def _ask(self, broker_id: int, way: _Way) -> None:
        """Send the next request to a broker that has answered the one before."""
        batch = self._take(way)
        if not batch:
            del self._ways[broker_id]
            return
        way.asking = Deferred.fromCoroutine(self._ask_once(broker_id, batch))
        way.asking.addErrback(_asking_ended).addCallback(self._asked, broker_id, way)

    def _take(self, way: _Way) -> dict[Marker, _Ending]:
        wanted: dict[Marker, _Ending] = {}
        while way.queue and not wanted:
            taken = dict(islice(way.queue.items(), self._config.markers_per_request_max))
            for marker in taken:
                del way.queue[marker]
            wanted = {marker: ending for marker, ending in taken.items() if self._is_wanted(ending)}
        return wanted

    async def _ask_once(self, broker_id: int, batch: dict[Marker, _Ending]) -> None:
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
            # Whatever it is, the markers are written some time: who waits for them waits for ever else.
            log.failure("writing transaction markers")
            codes = {}
        else:
            codes = codes_of(answer)
        self._answered(batch, codes)

    def _asked(self, _: None, broker_id: int, way: _Way) -> None:
        way.asking = None
        if not self._is_stopped:
            self._ask(broker_id, way)
            self._try_later()

    # --- what becomes of it ------------------------------------------------------------------------------------------

    def _answered(self, batch: dict[Marker, _Ending], codes: dict[Marker, ErrorCode]) -> None:
        complete: dict[int, _Ending] = {}
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
                log.warn("{key} takes no marker: {code}", key=str(marker.key), code=code.name)
            ending.remaining.pop(marker.key, None)
            if not ending.remaining:
                complete[marker.producer_id] = ending
        self._completed(complete.values())

    def _give_up(self, ending: _Ending, key: TopicPartition) -> None:
        log.warn(
            "{key} has a marker of a later coordinator of {transactional_id!r}: it ends that transaction",
            key=str(key),
            transactional_id=ending.transaction.transactional_id,
        )
        del self._of_shard[ending.shard][ending.transaction.producer_id]

    def _completed(self, endings: Iterable[_Ending]) -> None:
        for ending in endings:
            if self._is_wanted(ending):
                del self._of_shard[ending.shard][ending.transaction.producer_id]
                ending.shard.markers_written(ending.transaction)

    def _is_wanted(self, ending: _Ending) -> bool:
        """Whether nobody has forgotten it, and nothing newer has taken its place."""
        return self._of_shard.get(ending.shard, {}).get(ending.transaction.producer_id) is ending


_NOWHERE = TopicPartition("", -1)
"""Stands for the partitions of a transaction that has none."""


def _asking_ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("writing transaction markers", failure)
