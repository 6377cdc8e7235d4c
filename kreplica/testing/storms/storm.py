"""Executes a plan of faults on a cluster under load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.storms.applications.applications import Applications
from kreplica.testing.storms.applications.internal_topics import OVERRIDES
from kreplica.testing.storms.clients.weak_producers import WeakProducers
from kreplica.testing.storms.cluster_run import REPLICAS
from kreplica.testing.storms.faults import (
    APPLICATION_FAULTS,
    ENSEMBLE_FAULTS,
    FAULTS,
    SECURITY_FAULTS,
    SIDE_TOPIC_FAULTS,
    topics,
)
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.plan import Fault, make_plan
from kreplica.testing.storms.replicated_run import SAFE, SYNCED, ReplicatedRun
from kreplica.testing.storms.security.secured_clients import SecuredClients, session_lifetime_ms

JOURNAL_BYTES_MAX = 4 * 2**20

APPLIED_S_MAX = 5.0
"""Time in which a broker applies a change of permissions, in addition to two ZooKeeper session timeouts."""

APPLICATION_FAULT_INTERVAL_FACTOR, APPLICATION_FAULT_OVERLAP_MAX = 2.0, 2
"""Limits of the faults of applications: after most of them, an application starts again, and it must have time to make
progress before the next fault."""


def weights(options: StormOptions) -> dict[str, float]:
    return {
        name: weight
        for name, (_, weight) in FAULTS.items()
        if options.side_topics or name not in SIDE_TOPIC_FAULTS
    }


def faults_of_seed(seed: int, options: StormOptions) -> list[Fault]:
    """Return the plan of a seed.

    Faults of applications, of the ensemble and of access control are appended to the other faults, which are the same
    with and without them.
    """
    plan = make_plan(seed, options, weights(options))
    if options.applications:
        less_frequent = replace(
            options,
            fault_interval_s=APPLICATION_FAULT_INTERVAL_FACTOR * options.fault_interval_s,
            overlap=min(options.overlap, APPLICATION_FAULT_OVERLAP_MAX),
        )
        frequencies = {name: weight for name, (_, weight) in APPLICATION_FAULTS.items()}
        label, first_number = "plan of the applications", len(plan) + 1
        plan += make_plan(seed, less_frequent, frequencies, label=label, first_number=first_number)
    if options.ensemble > 1:
        frequencies = {name: weight for name, (_, weight) in ENSEMBLE_FAULTS.items()}
        label, first_number = "plan of the ensemble", len(plan) + 1
        plan += make_plan(seed, options, frequencies, label=label, first_number=first_number)
    if options.security:
        frequencies = {name: weight for name, (_, weight) in SECURITY_FAULTS.items()}
        label, first_number = "plan of the administrator", len(plan) + 1
        plan += make_plan(seed, options, frequencies, label=label, first_number=first_number)
    return plan


class _Boundary(NamedTuple):
    at_s: float
    number: int
    is_end: bool
    fault: Fault


class Storm:
    """Run of one seed: creates a cluster with the clients that the options select, and executes plans of faults on it.

    :param trace: called with one line per event.
    :ivar run: the cluster and its clients.
    """

    def __init__(self, seed: int, options: StormOptions, trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.options = options
        configs = {**(SYNCED if options.synced else SAFE), "segment.bytes": str(options.segment_bytes)}
        self.run = ReplicatedRun(
            seed,
            brokers=options.brokers,
            partitions=options.partitions,
            configs=configs,
            overrides=[
                f"zookeeper.session.timeout.ms={options.session_ms}",
                f"replica.lag.time.max.ms={options.lag_ms}",
                f"kreplica.controller.journal.max.bytes={JOURNAL_BYTES_MAX if options.journal else 0}",
                *(OVERRIDES if options.applications or options.security else ()),
            ],
            load=options.load,
            racks=options.racks,
            style=options.style,
            ensemble=EnsembleOptions(options.ensemble, options.ensemble_lag_s) if options.ensemble > 1 else None,
            protected=options.protected,
            secured=options.security,
            session_lifetime_ms=session_lifetime_ms(seed),
            trace=trace,
        )
        self._ends: dict[int, End] = {}
        if options.applications:
            self.run.companions.append(Applications(self.run, REPLICAS, configs))
        if options.security:
            is_alone = options.ensemble == 1
            applied_s_max = APPLIED_S_MAX + 2 * options.session_ms / 1000 if is_alone else None
            self.run.companions.append(SecuredClients(self.run, REPLICAS, configs, applied_s_max))
        if options.weak_producers:
            self.run.companions.append(WeakProducers(self.run, REPLICAS, configs))
        if options.side_topics:
            topics.create(self.run, Random(f"{seed}/topic"))

    def execute(self, plan: Sequence[Fault]) -> None:
        """Start and end the faults of a plan at their times, and run until the end of the storm."""
        started_s = self.run.cluster.simulation.now_s
        starts = [_Boundary(fault.at_s, fault.number, False, fault) for fault in plan]
        ends = [_Boundary(fault.at_s + fault.duration_s, fault.number, True, fault) for fault in plan]
        for boundary in sorted([*starts, *ends], key=lambda boundary: boundary[:3]):
            self._run_until(started_s + boundary.at_s)
            if boundary.is_end:
                self._end(boundary.fault)
            else:
                self.run.steps(boundary.fault.steps)
                self._begin(boundary.fault)
        self._run_until(started_s + self.options.seconds)

    def _run_until(self, at_s: float) -> None:
        remaining_s = at_s - self.run.cluster.simulation.now_s
        if remaining_s > 0:
            self.run.cluster.run(remaining_s)

    def _begin(self, fault: Fault) -> None:
        self.run.note(f"{fault.number}: {fault.name}")
        begin, _ = {**FAULTS, **APPLICATION_FAULTS, **ENSEMBLE_FAULTS, **SECURITY_FAULTS}[fault.name]
        end = begin(self.run, Random(f"{self.seed}/fault/{fault.number}"))
        if end is not None:
            self._ends[fault.number] = end

    def _end(self, fault: Fault) -> None:
        end = self._ends.pop(fault.number, None)
        if end is not None:
            self.run.note(f"{fault.number}: end of {fault.name}")
            end()
