"""The health report of the cluster: the faults of all brokers, and those that follow from the published metadata.

Overview, ``kreplica cluster``, ``/v1/cluster`` and ``/v1/health`` show this report;
``/v1/brokers/{broker_id}`` shows the faults of one broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.admin.cluster_state.counts import CachedCounts, Counts
from kreplica.admin.cluster_state.published_metadata import PublishedMetadata
from kreplica.admin.health.cluster_faults import cluster_faults
from kreplica.admin.health.faults import (
    BAD,
    BROKER_ONLY_KINDS,
    PUBLISHED_KINDS,
    WARNING,
    Fault,
    broker_fault,
    by_importance,
)
from kreplica.admin.health.schemas import GOOD, LOCAL
from kreplica.admin.http.api import Call
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.forwarding import NO_ADMIN_LISTENER, OtherBrokers
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.runtime import Reactor
from kreplica.zookeeper import ZooKeeperError

log = Logger()

LOCAL_PATH = "/v1/health/broker"
REUSE_SECONDS = 1.0
"""Minimum time between two requests to the same broker."""

WAIT_SECONDS = 1.0
"""Maximum time that a report waits for a broker's response."""

SILENT_SECONDS = 2.0
"""Time after which a broker that has not responded is reported as silent."""

PEER_LOCAL = PeerResponseValidator(LOCAL)


class LocalFaults(Protocol):
    """The faults of this broker."""

    async def faults(self) -> Sequence[Fault]:
        """Return the current faults."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of the cluster at one moment.

    :param counts: counts from the published metadata, from which ``figures`` are derived.
    :param faults: documents of faults, the most important first.
    """

    counts: Counts
    brokers_count: int
    faults: Sequence[Mapping[str, Any]]
    problems: Sequence[str]

    def of_broker(self, broker_id: int) -> list[Mapping[str, Any]]:
        """Return the faults of one broker."""
        subject = f"broker {broker_id}"
        return [fault for fault in self.faults if fault["subject"] == subject]

    @property
    def figures(self) -> dict[str, int]:
        """The number of objects with each fault; see ``FIGURES``."""
        return {
            "offline_partitions": len(self.counts.offline),
            "under_min_isr_partitions": len(self.counts.under_min_isr),
            "under_replicated_partitions": len(self.counts.under_replicated),
            "failed_log_dirs": self._number_of("failed_disk"),
            "full_log_dirs": self._number_of("full_disk"),
            "damaged_logs": sum(fault["count"] for fault in self.faults if fault["kind"] == "damaged_log"),
            "brokers_gone": self._number_of("broker_gone"),
            "brokers_silent": self._number_of("broker_silent"),
        }

    def _number_of(self, kind: str) -> int:
        return sum(fault["kind"] == kind for fault in self.faults)

    @property
    def state(self) -> str:
        severities = {fault["severity"] for fault in self.faults}
        return BAD if BAD in severities else WARNING if severities else GOOD

    @property
    def summary(self) -> str:
        if not self.faults:
            brokers = "1 broker" if self.brokers_count == 1 else f"{self.brokers_count} brokers"
            return f"All is well: {brokers}, every partition has a leader, and all replicas are in sync."
        text = str(self.faults[0]["text"])
        more = len(self.faults) - 1
        return text if not more else f"{text} ({more} more {'problem' if more == 1 else 'problems'})"

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "summary": self.summary,
            "figures": self.figures,
            "faults": list(self.faults),
            "problems": list(self.problems),
        }


@dataclass(slots=True)
class _Peer:
    """The last response of another broker.

    :ivar requested_s: time of the last request; ``is_pending`` while it has no response.
    :ivar problem: why the last request failed; None if it succeeded or there was none.
    :ivar unknown: why its faults are not known, if the cause is not the broker; a sentence.
    """

    faults: Sequence[Mapping[str, Any]] = ()
    requested_s: float | None = None
    is_pending: bool = False
    problem: Problem | None = None
    unknown: str | None = None
    request: Deferred[None] | None = field(default=None, repr=False)


class ClusterHealth:
    """Collects the faults of all brokers; a broker that does not respond delays a report by at most a second.

    :param local: the faults of this broker.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        published: PublishedMetadata,
        counts: CachedCounts,
        local: LocalFaults,
        others: OtherBrokers,
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._published = published
        self._counts = counts
        self._local = local
        self._others = others
        self._peers: dict[int, _Peer] = {}
        self._waiting: dict[Deferred[None], None] = {}

    async def local_document(self) -> dict[str, Any]:
        """Return the faults of this broker; see ``LOCAL``."""
        return {"faults": [fault.document() for fault in await self._local.faults()]}

    async def current(self, call: Call) -> HealthReport:
        """Return the current report.

        :param call: its credentials authenticate the requests to other brokers.
        """
        live = sorted(self._published.brokers)
        counts = await self._counts.current()
        local_faults = (await self.local_document())["faults"]
        await self._request_peers(call, [broker for broker in live if broker != self._broker_id])
        of_cluster = cluster_faults(counts, live, self._published.controller_id)
        faults: list[Mapping[str, Any]] = [fault.document() for fault in of_cluster]
        rows = [*local_faults, *(row for _, peer in sorted(self._peers.items()) for row in peer.faults)]
        faults += [row for row in rows if row["kind"] not in (*PUBLISHED_KINDS, *BROKER_ONLY_KINDS)]
        silent, problems = self._silent_peers()
        faults += silent
        return HealthReport(counts, len(live), by_importance(faults), problems)

    # --- other brokers -----------------------------------------------------------------------------------------------

    async def _request_peers(self, call: Call, brokers: Sequence[int]) -> None:
        """Request the faults of other brokers, and wait a moment for their responses."""
        self._peers = {broker: self._peers.get(broker) or _Peer() for broker in brokers}
        now_s = self._reactor.seconds()
        for broker, peer in self._peers.items():
            if not peer.is_pending and (peer.requested_s is None or now_s - peer.requested_s >= REUSE_SECONDS):
                peer.requested_s, peer.is_pending = now_s, True
                peer.request = Deferred.fromCoroutine(self._request(broker, peer, call))
                peer.request.addErrback(lambda failure: log.failure("cannot request the faults of a broker", failure))
        while (wait_s := self._remaining_wait_s()) > 0:
            await self._next_response(wait_s)

    async def _request(self, broker: int, peer: _Peer, call: Call) -> None:
        try:
            document = await self._others.request(broker, call, LOCAL_PATH, PEER_LOCAL)
            peer.faults, peer.problem, peer.unknown = document["faults"], None, None
        except CancelledError:
            pass  # the admin API stops
        except Problem as problem:
            is_fault = problem.title != NO_ADMIN_LISTENER
            peer.problem = problem if is_fault else None
            peer.unknown = None if is_fault else f"{problem.detail}: its faults are unknown"
        except ZooKeeperError as error:
            text = f"the faults of broker {broker} are unknown: ZooKeeper cannot be read ({error})"
            peer.problem, peer.unknown = None, text
        finally:
            peer.is_pending = False
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                if not waiter.called:
                    waiter.callback(None)

    def _remaining_wait_s(self) -> float:
        """Return how long to wait for responses; 0 if all brokers responded, or had a second to respond."""
        now_s = self._reactor.seconds()
        pending = [peer for peer in self._peers.values() if peer.is_pending]
        return max([0.0, *((peer.requested_s or 0.0) + WAIT_SECONDS - now_s for peer in pending)])

    async def _next_response(self, timeout_s: float) -> None:
        waiter: Deferred[None] = Deferred()
        self._waiting[waiter] = None

        def expire() -> None:
            self._waiting.pop(waiter, None)
            if not waiter.called:
                waiter.callback(None)

        timer: IDelayedCall = self._reactor.callLater(timeout_s, expire)
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)
            if timer.active():
                timer.cancel()

    def _silent_peers(self) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Return a fault for each broker that does not respond, and sentences about brokers with unknown faults."""
        now_s = self._reactor.seconds()
        faults: list[Mapping[str, Any]] = []
        problems = []
        for broker, peer in sorted(self._peers.items()):
            waited_s = now_s - peer.requested_s if peer.is_pending and peer.requested_s is not None else 0.0
            if peer.unknown is not None:
                problems.append(peer.unknown)
            elif peer.problem is not None or waited_s > SILENT_SECONDS:
                reason = peer.problem.detail if peer.problem is not None else f"no response for {waited_s:.0f} s"
                text = f"Broker {broker} does not respond to admin requests: {reason}."
                faults.append(broker_fault("broker_silent", broker, text).document())
        return faults, problems
