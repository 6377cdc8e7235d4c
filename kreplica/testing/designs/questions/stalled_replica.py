"""Measures the time until a record is committed while one of three replicas stalls, under three commit rules.

With in-sync replicas (kreplica's rule), a follower is removed after ``replica.lag.time.max.ms``.  The other rules
are computed from the same run: with a limit in bytes, the leader also stops waiting for a follower that lacks more
bytes than the limit; a quorum of two commits a record as soon as two replicas have it.  A quorum of two loses committed
records if both replicas are lost; three in-sync replicas keep them if one of them remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import active_replicas, state_of
from kreplica.testing.simulator.scheduler import Process
from kreplica.wire.batch_building import BatchBuilder

TOPIC = "load"
KEY = TopicPartition(TOPIC, 0)
STALLS_S = (0.1, 1.0, 10.0, 30.0)
INTERVAL_S = 0.05
BATCH_BYTES = 1_000
LAG_MAX_BATCHES = 40
"""The byte limit, expressed in batches: two seconds' worth."""
LEADER, STALLED = 1, 3
BEFORE_S, AFTER_S = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class StallResult:
    """Longest times from the append on the leader until a record is committed.

    :param stall_s: time for which the follower's process is paused.
    :param removed: True if the follower left the ISR.
    """

    stall_s: float
    in_sync_s: float
    bytes_limit_s: float
    quorum_s: float
    removed: bool


@dataclass(slots=True)
class _BatchTimes:
    """Times at which a batch was appended, and committed under each rule."""

    appended_s: float
    in_sync_s: float | None = None
    bytes_limit_s: float | None = None
    quorum_s: float | None = None


@dataclass(slots=True)
class _Observations:
    """Batches by their end offset, in order."""

    batches: dict[int, _BatchTimes] = field(default_factory=dict)
    removed: bool = False


def stall_results() -> Iterator[StallResult]:
    """Yield the times for each duration of a stall."""
    for stall_s in STALLS_S:
        observed = _run(stall_s)
        batches = observed.batches.values()
        yield StallResult(
            stall_s,
            max(_duration_s(batch, batch.in_sync_s) for batch in batches),
            max(_duration_s(batch, batch.bytes_limit_s) for batch in batches),
            max(_duration_s(batch, batch.quorum_s) for batch in batches),
            observed.removed,
        )


def _duration_s(batch: _BatchTimes, committed_s: float | None) -> float:
    assert committed_s is not None, "a batch was not committed"
    return committed_s - batch.appended_s


def _run(stall_s: float) -> _Observations:
    cluster = SimulatedCluster(1, brokers=3, overrides=["min.insync.replicas=2"])
    cluster.start()
    admin = cluster.client()
    cluster.run_until(admin.create_topic(TOPIC, assignment=[(LEADER, 2, STALLED)]))
    cluster.run_until(admin.close())
    cluster.wait_in_sync(TOPIC, [0])
    observed = _Observations()
    client = cluster.leader_client(*KEY, name="client")
    builder = BatchBuilder()
    builder.append(0, None, bytes(BATCH_BYTES))
    batch = bytes(builder.build())
    pending: list[Deferred[int]] = []
    simulation = cluster.simulation
    cluster.run_until(client.connection())
    simulation, stalled, process = cluster.simulation, cluster.brokers[STALLED].host, Process("experiment")
    started_s, duration_s = simulation.now_s, BEFORE_S + stall_s + AFTER_S

    def send() -> None:
        pending.append(Deferred.fromCoroutine(client.produce(*KEY, batch, acks=1)))

    for number in range(round(duration_s / INTERVAL_S)):
        simulation.scheduler.post(process, number * INTERVAL_S, send)
    simulation.scheduler.post(process, BEFORE_S, stalled.pause)
    simulation.scheduler.post(process, BEFORE_S + stall_s, stalled.resume)
    while simulation.now_s < started_s + duration_s + AFTER_S:
        simulation.step()
        _observe(cluster, observed)
    for response in pending:
        cluster.run_until(response)
    cluster.run_until(client.close())
    return observed


def _observe(cluster: SimulatedCluster, observed: _Observations) -> None:
    now_s = cluster.simulation.now_s
    replicas = dict(active_replicas(cluster, KEY))
    leader, state = replicas[LEADER], state_of(cluster, KEY)
    assert state is not None
    observed.removed = observed.removed or STALLED not in state.isr
    ends = sorted(replica.log.log_end_offset for replica in replicas.values())
    end_offset = leader.log.log_end_offset
    if end_offset and end_offset not in observed.batches:
        observed.batches[end_offset] = _BatchTimes(now_s)
    exceeds_limit = end_offset - ends[0] > LAG_MAX_BATCHES
    for offset, batch in reversed(observed.batches.items()):
        if batch.in_sync_s is not None:
            break  # all earlier batches are committed too
        if batch.quorum_s is None and ends[-2] >= offset:
            batch.quorum_s = now_s
        if leader.high_watermark >= offset:
            batch.in_sync_s = now_s
        if batch.bytes_limit_s is None and (batch.in_sync_s is not None or (exceeds_limit and ends[-2] >= offset)):
            batch.bytes_limit_s = now_s
