"""All applications of a run: writers, a group of workers, copiers and readers, all using the client library.

Writers send numbered records to a source topic.  Workers read it as a group and commit; copiers copy it to a target
topic in transactions; readers read both topics from the beginning.  At the end, each acknowledged record must be in the
source once, the group must have processed every record, and the target must have one copy of each record, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kreplica.client.consumer import ConsumerOptions
from kreplica.client.group.options import GroupOptions
from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.coordination import partition_of
from kreplica.model import TopicPartition
from kreplica.testing.anomalies import report
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.cluster.state import active_replicas, has_no_open_transaction, is_all_committed, is_in_sync
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.checks import check_copied, check_read, check_sent
from kreplica.testing.storms.applications.copier import Copier, CopyTask, EpochBumpCopier, LibraryCopier
from kreplica.testing.storms.applications.history import ApplicationHistory, ReadHistory
from kreplica.testing.storms.applications.internal_topics import (
    COORDINATOR_PARTITIONS,
    SESSION_TIMEOUT_S,
    make_internal_topics,
)
from kreplica.testing.storms.applications.logs import committed_offsets, read_logs, state_and_size
from kreplica.testing.storms.applications.reader import Reader
from kreplica.testing.storms.applications.settings import settings_of_seed
from kreplica.testing.storms.applications.slots import ApplicationSlot
from kreplica.testing.storms.applications.worker import CLASSIC, LongDelays, Worker
from kreplica.testing.storms.applications.writer import Writer
from kreplica.testing.storms.cluster_run import ClusterRun, ProgramFailed
from kreplica.wire.records import Record

SOURCE, TARGET = "application-source", "application-target"
WORKERS, COPIERS = "workers", "carriers"
"""Groups.  The names of groups, hosts and transactional IDs are part of the schedule of a seed."""

OPERATOR = "applications"

REBALANCE_TIMEOUT_S = 6.0
HEARTBEAT_S, AUTO_COMMIT_S = 1.0, 2.0
TRANSACTION_TIMEOUT_S = 5.0

CATCH_UP_S_MAX = 300.0
END_S_MAX = 180.0
STABLE_S_MAX = 60.0
CHECK_INTERVAL_S = 0.5
COORDINATOR_CHECK_S = 0.05


class Applications:
    """Companion of a run with the applications that the seed selects.

    :param configs: settings of both topics and, except ``segment.bytes``, of the internal topics.
    """

    def __init__(self, run: ClusterRun, replicas: int, configs: Mapping[str, str]) -> None:
        self._run = run
        self._cluster = run.cluster
        self.settings = settings = settings_of_seed(run.seed)
        run.note(f"applications: {settings}")
        self.history = ApplicationHistory(
            lambda: run.cluster.simulation.now_s, (WORKERS, COPIERS), self._may_overlap, settings.partitions
        )
        self._brokers = [(f"broker-{number}", BROKER_PORT) for number in run.cluster.brokers]
        self.sources = [TopicPartition(SOURCE, number) for number in range(settings.partitions)]
        self.targets = [TopicPartition(TARGET, number) for number in range(settings.partitions)]
        self._long_delays = LongDelays()
        self._two_coordinators_s = float("-inf")
        self._make_topics(replicas, configs)
        self._check_coordinators()
        self.writers = [self._slot("writer", index, self._writer) for index in range(settings.writers)]
        self.workers = [self._slot("worker", index, self._worker, WORKERS) for index in range(settings.workers)]
        self.copiers = [self._slot("carrier", index, self._copier, COPIERS) for index, _ in enumerate(settings.copiers)]
        self.readers = [self._slot("follower", index, self._reader) for index in range(settings.readers)]
        self.slots = [*self.writers, *self.workers, *self.copiers, *self.readers]
        for slot in self.slots:
            slot.start()

    def _make_topics(self, replicas: int, configs: Mapping[str, str]) -> None:
        """Create the topics, and give the internal topics the same guarantees."""
        run_until = self._cluster.run_until
        admin = self._cluster.client()
        self._internal = make_internal_topics(self._run, OPERATOR, admin, configs)
        for topic in (SOURCE, TARGET):
            run_until(admin.create_topic(topic, len(self.sources), configs, replication_factor=replicas))
        run_until(admin.close())
        for key in (*self.sources, *self.targets):
            self._run.invariants.add(key, None)

    # --- applications ------------------------------------------------------------------------------------------------

    def _slot(self, kind: str, index: int, make: Any, group: str = "") -> ApplicationSlot:
        def make_application(host: Host, name: str) -> Any:
            return make(host, name, index)

        group_history = self.history.groups.get(group)
        return ApplicationSlot(self._run, f"{kind}-{index}", make_application, self.history, group_history)

    def _writer(self, host: Host, name: str, index: int) -> Writer:
        settings, partitions = self.settings, len(self.sources)
        options, interval_s = settings.producers[index], settings.interval_s
        return Writer(host, name, self._bootstrap, self.history, SOURCE, partitions, interval_s, options)

    def _worker(self, host: Host, name: str, index: int) -> Worker:
        settings, history = self.settings, self.history.groups[WORKERS]
        instance_id = f"worker-{index}" if settings.static else None
        options = self._consumer_options(WORKERS, settings.auto_commit[index], instance_id)
        style = settings.styles[index]
        return Worker(host, name, self._bootstrap, history, [SOURCE], style, options, self._long_delays)

    def _copier(self, host: Host, name: str, index: int) -> Copier:
        options = self._consumer_options(COPIERS, auto_commit=False)
        task = CopyTask(SOURCE, TARGET, self._brokers, f"carrier-{index}", TRANSACTION_TIMEOUT_S, options)
        make = EpochBumpCopier if self.settings.copiers[index] == 2 else LibraryCopier
        return make(host, name, self._bootstrap, task, self.history.groups[COPIERS], self.history.transactions)

    def _reader(self, host: Host, name: str, index: int) -> Reader:
        history = ReadHistory(name, read_committed=index % 2 == 0)
        self.history.reads.append(history)
        partitions = [*self.sources, *self.targets]
        return Reader(host, name, self._bootstrap, history, partitions, TARGET, self.history.transactions)

    def _consumer_options(self, group: str, auto_commit: bool, instance_id: str | None = None) -> ConsumerOptions:
        settings = self.settings
        return ConsumerOptions(
            group=GroupOptions(
                group_id=group,
                instance_id=instance_id,
                protocol=settings.protocol,
                assignors=settings.assignors,
                session_timeout_s=SESSION_TIMEOUT_S,
                heartbeat_interval_s=HEARTBEAT_S,
                rebalance_timeout_s=REBALANCE_TIMEOUT_S,
            ),
            auto_commit_s=AUTO_COMMIT_S if auto_commit else None,
            fetch_wait_s=settings.fetch_wait_s,
            fetch_size_max=settings.fetch_size_max,
            partition_size_max=settings.fetch_size_max,
            buffer_size_max=settings.buffer_size_max,
        )

    @property
    def _bootstrap(self) -> str:
        return self._cluster.bootstrap_servers

    def _may_overlap(self, old_owner: str, new_owner: str) -> bool:
        """Return True if the old owner of a partition may not know yet that it has lost the partition.

        The old owner is paused, or is a static member that another process has replaced, or a deposed coordinator has
        confirmed its membership within the session timeout.
        """
        slot = next(slot for slot in self.slots if old_owner.startswith(f"{slot.name}#"))
        is_replaced = self.settings.static and new_owner.startswith(f"{slot.name}#")
        since_s = self._cluster.simulation.now_s - self._two_coordinators_s
        return is_replaced or slot.is_paused(old_owner) or since_s < SESSION_TIMEOUT_S + COORDINATOR_CHECK_S

    def _check_coordinators(self) -> None:
        if self._has_two_coordinators():
            self._two_coordinators_s = self._cluster.simulation.now_s
        self._cluster.host(OPERATOR).reactor.callLater(COORDINATOR_CHECK_S, self._check_coordinators)

    def _has_two_coordinators(self) -> bool:
        """Return True if two brokers act as leader of the same offsets partition."""
        offsets = [key for key in self._internal if key.topic == CONSUMER_OFFSETS]
        leaders = [
            [broker for broker, partition in active_replicas(self._cluster, key) if partition.is_leader]
            for key in offsets
        ]
        return any(len(brokers) > 1 for brokers in leaders)

    # --- state for faults --------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[TopicPartition]:
        return [*self.sources, *self.targets, *self._internal]

    @property
    def hosts(self) -> list[str]:
        return [host for slot in self.slots for host in slot.hosts]

    def coordinators(self) -> list[TopicPartition]:
        """Return the internal partition of each group and transactional ID, with duplicates."""
        names = [(CONSUMER_OFFSETS, group) for group in (WORKERS, COPIERS)]
        names += [(TRANSACTION_STATE, slot.name) for slot in self.copiers]
        return [TopicPartition(topic, partition_of(name, COORDINATOR_PARTITIONS)) for topic, name in names]

    # --- end of the run ----------------------------------------------------------------------------------------------

    def converge(self) -> None:
        run_until = self._cluster.run_until
        self._long_delays.are_enabled = False
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s=180.0)
        for slot in self.slots:
            slot.keep_newest()
        self._stop(self.writers)
        self._wait_until_committed(self.sources)
        logs = read_logs(self._cluster, OPERATOR, self.sources)
        for group, slots in ((WORKERS, self.workers), (COPIERS, self.copiers)):
            self._wait_until_caught_up(group, logs)
            self._wait_until_stable(group, len(slots))
        self._stop([*self.workers, *self.copiers])
        self._wait_until_committed(self.targets)
        targets = {
            read_committed: read_logs(self._cluster, OPERATOR, self.targets, read_committed=read_committed)
            for read_committed in (True, False)
        }
        self._wait_for_readers({visible: {**logs, **target} for visible, target in targets.items()})
        self._stop(self.readers)
        self._check(logs, targets[True])

    def _wait_until_caught_up(self, group: str, logs: Mapping[TopicPartition, Sequence[Record]]) -> None:
        """Run until a group has committed the end of each partition."""
        ends = {key: len(log) for key, log in logs.items() if log}
        until_s = self._cluster.simulation.now_s + CATCH_UP_S_MAX
        while (committed := committed_offsets(self._cluster, OPERATOR, group, list(ends))) != ends:
            assert self._cluster.simulation.now_s < until_s, f"group {group} has committed {committed}, not {ends}"
            self._cluster.run(CHECK_INTERVAL_S)
            self._check_failures()

    def _wait_until_stable(self, group: str, members: int) -> None:
        """Run until a group is stable and has one member per slot."""
        until_s = self._cluster.simulation.now_s + STABLE_S_MAX
        is_classic = self.settings.protocol == CLASSIC
        while (current := state_and_size(self._cluster, OPERATOR, group, is_classic=is_classic)) != ("Stable", members):
            assert self._cluster.simulation.now_s < until_s, f"group {group} is {current}, not stable with {members}"
            self._cluster.run(CHECK_INTERVAL_S)
            self._check_failures()

    def _wait_until_committed(self, partitions: Sequence[TopicPartition]) -> None:
        for key in partitions:
            self._cluster.run_until(lambda key=key: is_all_committed(self._cluster, key), timeout_s=120.0)
            self._cluster.run_until(lambda key=key: has_no_open_transaction(self._cluster, key), timeout_s=120.0)

    def _stop(self, slots: Sequence[ApplicationSlot]) -> None:
        """Stop applications in parallel, and wait until they have ended."""
        for slot in slots:
            slot.leave()
        self._run_until(lambda: not any(slot.is_occupied for slot in slots))

    def _run_until(self, goal: Callable[[], bool]) -> None:
        """Run until ``goal`` is true, or raise the error of an application that failed."""
        failures = self._cluster.simulation.failures
        self._cluster.run_until(lambda: bool(failures) or goal(), timeout_s=END_S_MAX)
        self._check_failures()

    def _check_failures(self) -> None:
        for failure in self._cluster.simulation.failures:
            raise ProgramFailed(f"{failure.getErrorMessage()}\n{failure.getTraceback()}")

    def _wait_for_readers(self, logs: Mapping[bool, Mapping[TopicPartition, Sequence[Record]]]) -> None:
        """Run until each reader has read its view of the logs; check all reads.

        :param logs: the two views, by ``read_committed``.
        """
        for slot in self.readers:
            reader = slot.application
            assert isinstance(reader, Reader)
            ends = {key: log[-1].offset + 1 for key, log in logs[reader.history.read_committed].items() if log}
            self._run_until(partial(reader.history.has_reached, ends))
        for history in self.history.reads:
            check_read(history, logs[history.read_committed])

    def _check(
        self,
        sources: Mapping[TopicPartition, Sequence[Record]],
        targets: Mapping[TopicPartition, Sequence[Record]],
    ) -> None:
        assert not self.history.contradictions, "; ".join(self.history.contradictions)
        report(self.history.transactions.observations).check()
        check_sent(self.history.sent, sources)
        for source, target in zip(self.sources, self.targets, strict=True):
            check_copied(sources[source], targets[target], target)
        workers = self.history.groups[WORKERS]
        for key, log in sources.items():
            end = workers.processed_ends.get(key, 0)
            assert end == len(log), f"{key}: {end} of {len(log)} records were processed"
