"""Base of a simulated run: a cluster with a main topic, whose invariants are checked after every event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twisted.python.failure import Failure

from kreplica.model import TopicPartition
from kreplica.settings.definitions.replication import RACK_AWARE_SELECTOR
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.invariants import Invariants
from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.histories.record_history import History

TOPIC = "load"
REPLICAS = 3
DELETE_DELAY_MS = 2000

SHORT_INTERVALS = (
    "zookeeper.session.timeout.ms=6000",
    "log.flush.offset.checkpoint.interval.ms=2000",
    "log.retention.check.interval.ms=2000",
    "replica.lag.time.max.ms=3000",
    f"log.segment.delete.delay.ms={DELETE_DELAY_MS}",
)
"""Settings of every broker: intervals short enough to expire in every run.  The deletion delay is a broker setting, so
that it also applies to deleted topics."""

RACKS = ("north", "south", "west")
NEAREST = f"replica.selector.class={RACK_AWARE_SELECTOR}"


class ProgramFailed(AssertionError):
    """A program raised an error that is never allowed."""


class ClusterRun:
    """A cluster with a main topic, and the timeline of the operations on it.

    :param trace: called with one line per event and one per operation.
    :ivar synced: True if the topic has ``flush.messages=1``.
    :ivar timeline: faults and operations with their times, for the analysis of a failure.
    :ivar history: sends and reads of the main topic's clients.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int,
        partitions: int,
        configs: Mapping[str, str],
        overrides: Sequence[str],
        racks: bool,
        ensemble: EnsembleOptions | None,
        protected: bool,
        secured: bool,
        session_lifetime_ms: int,
        trace: Callable[[str], None] | None,
    ) -> None:
        self.seed = seed
        self.synced = configs.get("flush.messages") == "1"
        self.timeline: list[str] = []
        self._trace = trace
        self.racks = {broker: RACKS[broker % len(RACKS)] for broker in range(1, brokers + 1)} if racks else {}
        settings = [*SHORT_INTERVALS, *([NEAREST] if racks else []), *overrides]
        self.cluster = SimulatedCluster(
            seed,
            brokers=brokers,
            overrides=settings,
            racks=self.racks,
            ensemble=ensemble,
            protected=protected,
            secured=secured,
            session_lifetime_ms=session_lifetime_ms,
            trace=trace,
        )
        self.network = self.cluster.simulation.network
        self.random = self.cluster.simulation.random
        self.keys = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
        self.history = History(partitions, lambda: self.cluster.simulation.now_s)
        self.cluster.start()
        admin = self.cluster.client()
        self.cluster.run_until(admin.create_topic(TOPIC, partitions, configs, replication_factor=REPLICAS))
        self.cluster.run_until(admin.close())
        self.invariants = Invariants(self.cluster, TOPIC, partitions, self.history)
        self.invariants.watch()

    def note(self, text: str) -> None:
        """Append an operation to the timeline."""
        now_s = self.cluster.simulation.now_s
        self.timeline.append(f"{now_s:10.3f} {text}")
        if self._trace is not None:
            self._trace(f"{now_s:.9f} * {text}")

    def record_failure(self, failure: Failure) -> None:
        """Record an error that is never allowed; the run fails at its end."""
        self.cluster.simulation.failures.append(failure)
