"""One verification run: creates a topic, writes and reads it for a while, and checks the clients' history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.testing.anomalies import ClientHistory, Expectations, report
from kreplica.testing.verification.clients import Clients
from kreplica.testing.verification.cluster_access import Cluster, ClusterAccess, CouldNotRun
from kreplica.testing.verification.observations import Observations, percentile
from kreplica.testing.verification.options import ACKS_ALL, VerificationOptions
from kreplica.testing.verification.verdict import RunSetup, Verdict

TICK_S = 0.25
REPLICATION_FACTOR = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run.

    :param unread: acknowledged records that the slowest reader of each partition has not received.
    :param silence_s: longest time without an acknowledgement so far.
    :param errors: number of client errors so far.
    """

    at_s: float
    phase: str
    sent: int
    acknowledged: int
    unread: int
    silence_s: float
    errors: int


class Verification:
    """One run.

    :param report_progress: called several times per second.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: VerificationOptions,
        report_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._report_progress = report_progress
        self._stopped_early = False
        self._access = ClusterAccess(runtime.reactor, options.bootstrap)
        self._observations = Observations(options.partitions, runtime.reactor.seconds)

    @property
    def history(self) -> ClientHistory:
        return self._observations.history

    def stop_early(self) -> None:
        """Stop writing now and continue with the next phase."""
        self._stopped_early = True

    async def run(self) -> Verdict:
        """Execute the run once.

        :raise CouldNotRun: the cluster cannot be reached, rejects the topic, or acknowledges no record.
        """
        cluster = await self._access.find()
        setup = self._setup(cluster)
        await self._create_topic(cluster, setup)
        brokers = [*cluster.addresses.values(), *self._options.bootstrap]
        clients = Clients(self._runtime, brokers, setup.topic, self._options, self._observations)
        deletion_error = ""
        try:
            load_s, settled = await self._run_workload(clients)
        finally:
            try:
                await clients.abandon()
            finally:
                if not self._options.keep:
                    deletion_error = await self._delete_topic(cluster, setup.topic)
        self._report_progress(self._progress(clients, "checking"))
        return self._verdict(setup, clients, load_s, settled, deletion_error)

    def _setup(self, cluster: Cluster) -> RunSetup:
        options = self._options
        replication_factor = options.replication_factor or min(REPLICATION_FACTOR, len(cluster.addresses))
        return RunSetup(
            brokers=len(cluster.addresses),
            topic=options.topic or f"kreplica-verify-{self._runtime.random.getrandbits(32):08x}",
            partitions=options.partitions,
            replication_factor=replication_factor,
            min_in_sync=options.min_in_sync or max(1, replication_factor - 1),
            acks=options.acks,
        )

    async def _create_topic(self, cluster: Cluster, setup: RunSetup) -> None:
        configs = {
            "min.insync.replicas": str(setup.min_in_sync),
            "unclean.leader.election.enable": "false",
            **self._options.configs,
        }
        await self._access.create_topic(cluster, setup.topic, setup.partitions, setup.replication_factor, configs)

    # --- phases ------------------------------------------------------------------------------------------------------

    async def _run_workload(self, clients: Clients) -> tuple[float, bool]:
        """Write and read; then wait for missing acknowledgements and reads.

        :return: the duration of writing in seconds, and whether all records were acknowledged and read.
        """
        started_s = self._observations.now_s()
        clients.start_readers("reader")
        clients.start_producers()
        await self._write(clients, started_s + self._options.seconds / 2)
        clients.start_readers("late-reader")
        await self._write(clients, started_s + self._options.seconds)
        load_s = self._observations.now_s() - started_s
        clients.drain()
        acknowledged = await self._wait(clients, "waiting for acknowledgements", lambda: clients.all_acknowledged)
        if not self._observations.acknowledged_count:
            errors = ", ".join(f"{name} {count} times" for name, count in clients.errors.most_common())
            raise CouldNotRun(f"no record was acknowledged in {self._observations.now_s():.0f} s; errors: {errors}")
        clients.start_readers("last-reader")
        read = await self._wait(clients, "waiting for readers", lambda: clients.all_read)
        return load_s, acknowledged and read

    async def _write(self, clients: Clients, until_s: float) -> None:
        while (remaining_s := until_s - self._observations.now_s()) > 0 and not self._stopped_early:
            self._report_progress(self._progress(clients, "writing"))
            await pause(self._runtime.reactor, min(TICK_S, remaining_s))

    async def _wait(self, clients: Clients, phase: str, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; return False if there was no progress for ``settle_s``."""
        previous, progress_s = None, self._observations.now_s()
        while not condition():
            state = self._observations.acknowledged_count, clients.positions
            if state != previous:
                previous, progress_s = state, self._observations.now_s()
            elif self._observations.now_s() - progress_s >= self._options.settle_s:
                return False
            self._report_progress(self._progress(clients, phase))
            await pause(self._runtime.reactor, TICK_S)
        return True

    async def _delete_topic(self, cluster: Cluster, topic: str) -> str:
        """Delete the topic; return the reason if this fails, otherwise an empty string."""
        try:
            await self._access.delete_topic(cluster, topic)
        except CouldNotRun as error:
            return str(error)
        return ""

    # --- results -----------------------------------------------------------------------------------------------------

    def _progress(self, clients: Clients, phase: str) -> Progress:
        observed = self._observations
        unread = [0] * len(observed.ends)
        for partition, reader in clients.readers:
            unread[partition] = max(unread[partition], observed.ends[partition] - reader.position)
        return Progress(
            at_s=observed.now_s(),
            phase=phase,
            sent=observed.sent_count,
            acknowledged=observed.acknowledged_count,
            unread=sum(unread),
            silence_s=observed.longest_silence_s,
            errors=clients.errors.total(),
        )

    def _verdict(self, setup: RunSetup, clients: Clients, load_s: float, settled: bool, deletion_error: str) -> Verdict:
        observed, latencies_s = self._observations, self._observations.latencies_s
        return Verdict(
            setup=setup,
            load_s=load_s,
            sent=observed.sent_count,
            acknowledged=observed.acknowledged_count,
            acknowledged_bytes=observed.acknowledged_bytes,
            read=observed.read_count,
            latency_ms={
                "p50": percentile(latencies_s, 50) * 1000,
                "p99": percentile(latencies_s, 99) * 1000,
                "max": max(latencies_s, default=0.0) * 1000,
            },
            longest_silence_s=observed.longest_silence_s,
            producer_restarts=clients.producer_restarts,
            reader_restarts=clients.reader_restarts,
            errors=dict(clients.errors.most_common()),
            settled=settled,
            report=report(observed.history, Expectations(kept=setup.acks == ACKS_ALL)),
            deletion_error=deletion_error,
        )
