"""Executes a plan of faults on a cluster under load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from kreplica.testing.storms.applications.applications import OVERRIDES as APPLICATIONS_OVERRIDES
from kreplica.testing.storms.applications.applications import Applications
from kreplica.testing.storms.clients.chain import OVERRIDES as CHAIN_OVERRIDES
from kreplica.testing.storms.clients.chain import Chain
from kreplica.testing.storms.clients.loose_clients import LooseClients
from kreplica.testing.storms.cluster_run import REPLICAS
from kreplica.testing.storms.faults import APPLICATION_FAULTS, CHAIN_FAULTS, FAULTS, SIDE_TOPIC_FAULTS, topics
from kreplica.testing.storms.faults.fault import Begin, End
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.plan import Fault, make_plan
from kreplica.testing.storms.replicated_run import SAFE, SYNCED, ReplicatedRun

JOURNAL_BYTES_MAX = 4 * 2**20

CLIENT_FAULT_CALM_FACTOR, CLIENT_FAULT_OVERLAP_MAX = 2.0, 2
"""Limits of faults of chains and applications: after most of them a client starts again, and it must have time to make
progress before the next one."""


def weights(options: StormOptions) -> dict[str, float]:
    return {
        name: weight
        for name, (_, weight) in FAULTS.items()
        if options.side_topics or name not in SIDE_TOPIC_FAULTS
    }


def faults_of_seed(seed: int, options: StormOptions) -> list[Fault]:
    """Return the plan of a seed.

    Faults of chains and applications are appended to the others, which are the same with and without them.
    """
    plan = make_plan(seed, options, weights(options))
    calmer = replace(
        options,
        calm_s=CLIENT_FAULT_CALM_FACTOR * options.calm_s,
        overlap=min(options.overlap, CLIENT_FAULT_OVERLAP_MAX),
    )
    if options.chain:
        plan += _client_faults(seed, calmer, CHAIN_FAULTS, "plan of the chain", len(plan) + 1)
    if options.applications:
        plan += _client_faults(seed, calmer, APPLICATION_FAULTS, "plan of the applications", len(plan) + 1)
    return plan


def _client_faults(
    seed: int, options: StormOptions, faults: Mapping[str, tuple[Begin, float]], label: str, first_number: int
) -> list[Fault]:
    frequencies = {name: weight for name, (_, weight) in faults.items()}
    return make_plan(seed, options, frequencies, label=label, first_number=first_number)


class _Boundary(NamedTuple):
    at_s: float
    number: int
    is_end: bool
    fault: Fault


class Storm:
    """A cluster with the clients that the options select.

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
                *(CHAIN_OVERRIDES if options.chain else ()),
                *(APPLICATIONS_OVERRIDES if options.applications else ()),
            ],
            load=options.load,
            racks=options.racks,
            style=options.style,
            trace=trace,
        )
        self._ends: dict[int, End] = {}
        if options.chain:
            self.run.companions.append(Chain(self.run, REPLICAS, configs))
        if options.applications:
            self.run.companions.append(Applications(self.run, REPLICAS, configs))
        if options.loose:
            self.run.companions.append(LooseClients(self.run, REPLICAS, configs))
        if options.side_topics:
            topics.create(self.run, Random(f"{seed}/topic"))

    def execute(self, plan: Sequence[Fault]) -> None:
        """Start and end the faults of a plan at their times, and run until the end of the storm."""
        started_s = self.run.cluster.simulation.now_s
        starts = [_Boundary(fault.at_s, fault.number, False, fault) for fault in plan]
        ends = [_Boundary(fault.at_s + fault.lasts_s, fault.number, True, fault) for fault in plan]
        for boundary in sorted([*starts, *ends], key=lambda each: each[:3]):
            self._run_until(started_s + boundary.at_s)
            if boundary.is_end:
                self._end(boundary.fault)
            else:
                self.run.steps(boundary.fault.steps)
                self._begin(boundary.fault)
        self._run_until(started_s + self.options.seconds)

    def _run_until(self, at_s: float) -> None:
        left_s = at_s - self.run.cluster.simulation.now_s
        if left_s > 0:
            self.run.cluster.run(left_s)

    def _begin(self, fault: Fault) -> None:
        self.run.note(f"{fault.number}: {fault.name}")
        begin, _ = {**FAULTS, **CHAIN_FAULTS, **APPLICATION_FAULTS}[fault.name]
        end = begin(self.run, Random(f"{self.seed}/fault/{fault.number}"))
        if end is not None:
            self._ends[fault.number] = end

    def _end(self, fault: Fault) -> None:
        end = self._ends.pop(fault.number, None)
        if end is not None:
            self.run.note(f"{fault.number}: end of {fault.name}")
            end()
