"""One storm: a plan carried out on a cluster under load; then all is over, and everything must come back."""

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
from kreplica.testing.storms.faults import FAULTS, OF_APPLICATIONS, OF_CHAINS, OF_SIDE_TOPICS, topics
from kreplica.testing.storms.faults.fault import Begin, End
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.plan import Fault, make_plan
from kreplica.testing.storms.replicated_run import REPLICAS, SAFE, SYNCED, ReplicatedRun

JOURNAL_BYTES_MAX = 4 * 2**20

CALMER, AT_ONCE_MAX = 2.0, 2
"""How much longer than between other faults it is from one that aims at a chain or at applications to the next, and how
many of those are under way at once: most have somebody begin anew, and in between it is to come to something."""


def weights(options: StormOptions) -> dict[str, float]:
    """How often each kind of fault is chosen compared with others."""
    return {
        name: weight
        for name, (_, weight) in FAULTS.items()
        if options.side_topics or name not in OF_SIDE_TOPICS
    }


def planned(seed: int, options: StormOptions) -> list[Fault]:
    """The faults that a seed wants; those of a chain and of applications are behind the others, which stay the same."""
    plan = make_plan(seed, options, weights(options))
    calmer = replace(options, calm_s=CALMER * options.calm_s, overlap=min(options.overlap, AT_ONCE_MAX))
    if options.chain:
        plan += _aimed(seed, calmer, OF_CHAINS, "plan of the chain", len(plan) + 1)
    if options.applications:
        plan += _aimed(seed, calmer, OF_APPLICATIONS, "plan of the applications", len(plan) + 1)
    return plan


def _aimed(
    seed: int, options: StormOptions, faults: Mapping[str, tuple[Begin, float]], of: str, first: int
) -> list[Fault]:
    weighed = {name: weight for name, (_, weight) in faults.items()}
    return make_plan(seed, options, weighed, of=of, begin=first)


class _Moment(NamedTuple):
    """When a fault begins, or ends."""

    at_s: float
    number: int
    ends: bool
    fault: Fault


class Storm:
    """Safety first: faults everywhere, checks after every event; then liveness: no fault any more.

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

    def blow(self, plan: Sequence[Fault]) -> None:
        """Let all faults of a plan happen, each at its time, and all that time pass."""
        began_s = self.run.cluster.simulation.now_s
        begins = [_Moment(fault.at_s, fault.number, False, fault) for fault in plan]
        ends = [_Moment(fault.at_s + fault.lasts_s, fault.number, True, fault) for fault in plan]
        for moment in sorted([*begins, *ends], key=lambda each: each[:3]):
            self._pass_until(began_s + moment.at_s)
            if moment.ends:
                self._end(moment.fault)
            else:
                self.run.steps(moment.fault.steps)
                self._begin(moment.fault)
        self._pass_until(began_s + self.options.seconds)

    def _pass_until(self, at_s: float) -> None:
        left_s = at_s - self.run.cluster.simulation.now_s
        if left_s > 0:
            self.run.cluster.run(left_s)

    def _begin(self, fault: Fault) -> None:
        self.run.tell(f"{fault.number}: {fault.name}")
        begin, _ = {**FAULTS, **OF_CHAINS, **OF_APPLICATIONS}[fault.name]
        end = begin(self.run, Random(f"{self.seed}/fault/{fault.number}"))
        if end is not None:
            self._ends[fault.number] = end

    def _end(self, fault: Fault) -> None:
        end = self._ends.pop(fault.number, None)
        if end is not None:
            self.run.tell(f"{fault.number}: end of {fault.name}")
            end()
