"""Writers, a group of workers, carriers and followers: every one a program that uses the client library as users do.

Writers send numbered records to a source.  Workers read it as a group and commit; carriers copy it to a target in
transactions; followers read both from the beginning.  Whatever happens to brokers and to them: what was acknowledged is
there once, the group has processed everything, the target has each record once and in order, and nothing is stuck.
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
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient
from kreplica.testing.cluster.state import acting, is_all_committed, is_decided, is_in_sync
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.carrier import Carrier
from kreplica.testing.storms.applications.checks import check_carried, check_followed, check_sent
from kreplica.testing.storms.applications.circumstances import circumstances_of
from kreplica.testing.storms.applications.follower import Follower
from kreplica.testing.storms.applications.history import Followed, Tellings
from kreplica.testing.storms.applications.logs import committed_offsets, read_logs
from kreplica.testing.storms.applications.places import Place
from kreplica.testing.storms.applications.worker import Haste, Worker
from kreplica.testing.storms.applications.writer import Writer
from kreplica.testing.storms.replicated_run import ProgramFailed, ReplicatedRun
from kreplica.wire.records import Record

SOURCE, TARGET = "application-source", "application-target"
WORKERS, CARRIERS = "workers", "carriers"
OPERATOR = "applications"

SESSION_TIMEOUT_S, REBALANCE_TIMEOUT_S = 3.0, 6.0
HEARTBEAT_S, AUTO_COMMIT_S = 1.0, 2.0
TRANSACTION_TIMEOUT_S = 5.0
COORDINATOR_PARTITIONS = 2

OVERRIDES = (
    f"offsets.topic.num.partitions={COORDINATOR_PARTITIONS}",
    f"transaction.state.log.num.partitions={COORDINATOR_PARTITIONS}",
    f"group.min.session.timeout.ms={SESSION_TIMEOUT_S * 1000:.0f}",
    f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_S * 1000:.0f}",
    "group.consumer.heartbeat.interval.ms=1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
"""Settings of every broker: few partitions of internal topics, and time-outs that have their say in every storm."""

CATCH_UP_S_MAX = 300.0
END_S_MAX = 180.0
LOOK_S = 0.5
COORDINATORS_LOOK_S = 0.05


class Applications:
    """How many there are and how they use the library is chosen by the seed.

    :param configs: settings of both topics; but for the size of segments, of the coordinators' topics too.
    :ivar tellings: what they were told.
    """

    def __init__(self, run: ReplicatedRun, replicas: int, configs: Mapping[str, str]) -> None:
        self._run = run
        self._cluster = run.cluster
        self.circumstances = drawn = circumstances_of(run.seed)
        run.tell(f"applications: {drawn}")
        self.tellings = Tellings(lambda: run.cluster.simulation.now_s, (WORKERS, CARRIERS), self._may_overlap)
        self.sources = [TopicPartition(SOURCE, number) for number in range(drawn.partitions)]
        self.targets = [TopicPartition(TARGET, number) for number in range(drawn.partitions)]
        self._internal = [
            TopicPartition(topic, number)
            for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)
            for number in range(COORDINATOR_PARTITIONS)
        ]
        self._haste = Haste()
        self._two_coordinators_s = float("-inf")
        self._make_topics(replicas, configs)
        self._look_for_coordinators()
        self.writers = [self._place("writer", index, self._writer) for index in range(drawn.writers)]
        self.workers = [self._place("worker", index, self._worker, WORKERS) for index in range(drawn.workers)]
        self.carriers = [self._place("carrier", index, self._carrier, CARRIERS) for index in range(drawn.carriers)]
        self.followers = [self._place("follower", index, self._follower) for index in range(drawn.followers)]
        self.places = [*self.writers, *self.workers, *self.carriers, *self.followers]
        for place in self.places:
            place.begin()

    def _make_topics(self, replicas: int, configs: Mapping[str, str]) -> None:
        """Also those of the coordinators, from which no single failure may take anything either."""
        run_until = self._cluster.run_until
        brokers = [(f"broker-{number}", 9092) for number in self._cluster.brokers]
        for kind in (GROUP, TRANSACTION):
            reactor = self._cluster.host(OPERATOR).reactor
            client = CoordinatorClient(reactor, brokers, WORKERS, kind, client_id=OPERATOR)
            run_until(client.found())
            run_until(client.close())
        admin = self._cluster.client()
        safe = {name: value for name, value in configs.items() if name != "segment.bytes"}
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            run_until(admin.change_settings(topic, safe))
        for topic in (SOURCE, TARGET):
            run_until(admin.create_topic(topic, len(self.sources), configs, replication_factor=replicas))
        run_until(admin.close())
        for key in self.keys:
            self._run.invariants.add(key, None)

    # --- who there is ------------------------------------------------------------------------------------------------

    def _place(self, kind: str, index: int, make: Any, group: str = "") -> Place:
        told = self.tellings.groups.get(group)
        made = lambda host, name: make(host, name, index)  # noqa: E731
        return Place(self._run, f"{kind}-{index}", made, self.tellings, told)

    def _writer(self, host: Host, name: str, index: int) -> Writer:
        drawn, partitions = self.circumstances, len(self.sources)
        options, interval_s = drawn.producers[index], drawn.interval_s
        return Writer(host, name, self._bootstrap, self.tellings, SOURCE, partitions, interval_s, options)

    def _worker(self, host: Host, name: str, index: int) -> Worker:
        drawn = self.circumstances
        instance_id = f"worker-{index}" if drawn.static else None
        options = self._consuming(WORKERS, drawn.auto_commit[index], instance_id)
        told = self.tellings.groups[WORKERS]
        return Worker(host, name, self._bootstrap, told, [SOURCE], drawn.styles[index], options, self._haste)

    def _carrier(self, host: Host, name: str, index: int) -> Carrier:
        options = self._consuming(CARRIERS, auto_commit=False)
        return Carrier(
            host,
            name,
            self._bootstrap,
            self.tellings.groups[CARRIERS],
            (SOURCE, TARGET),
            f"carrier-{index}",
            options,
            TRANSACTION_TIMEOUT_S,
        )

    def _follower(self, host: Host, name: str, index: int) -> Follower:
        followed = Followed(name, read_committed=index % 2 == 0)
        self.tellings.followed.append(followed)
        return Follower(host, name, self._bootstrap, followed, [*self.sources, *self.targets])

    def _consuming(self, group: str, auto_commit: bool, instance_id: str | None = None) -> ConsumerOptions:
        drawn = self.circumstances
        return ConsumerOptions(
            group=GroupOptions(
                group_id=group,
                instance_id=instance_id,
                protocol=drawn.protocol,
                assignors=drawn.assignors,
                session_timeout_s=SESSION_TIMEOUT_S,
                heartbeat_interval_s=HEARTBEAT_S,
                rebalance_timeout_s=REBALANCE_TIMEOUT_S,
            ),
            auto_commit_s=AUTO_COMMIT_S if auto_commit else None,
            fetch_wait_s=drawn.fetch_wait_s,
            fetch_size_max=drawn.fetch_size_max,
            partition_size_max=drawn.fetch_size_max,
            buffer_size_max=drawn.buffer_size_max,
        )

    @property
    def _bootstrap(self) -> str:
        return self._cluster.bootstrap_servers

    def _may_overlap(self, had: str, has: str) -> bool:
        """A process that stands still knows nothing; a static member learns late that another has its place.

        Nor does a member know better than a coordinator that was deposed, and has not heard of it: for a session it may
        rely on what that one answered.
        """
        place = next(place for place in self.places if had.startswith(f"{place.name}#"))
        is_replaced = self.circumstances.static and has.startswith(f"{place.name}#")
        since_s = self._cluster.simulation.now_s - self._two_coordinators_s
        return is_replaced or place.stands_still(had) or since_s < SESSION_TIMEOUT_S + COORDINATORS_LOOK_S

    def _look_for_coordinators(self) -> None:
        if self._has_two_coordinators():
            self._two_coordinators_s = self._cluster.simulation.now_s
        self._cluster.host(OPERATOR).reactor.callLater(COORDINATORS_LOOK_S, self._look_for_coordinators)

    def _has_two_coordinators(self) -> bool:
        """Whether a broker believes that it leads what another one leads by now."""
        offsets = [key for key in self._internal if key.topic == CONSUMER_OFFSETS]
        leaders = [
            [broker for broker, partition in acting(self._cluster, key) if partition.is_leader] for key in offsets
        ]
        return any(len(each) > 1 for each in leaders)

    # --- what faults look for ----------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[TopicPartition]:
        """Of all partitions, those of the coordinators too."""
        return [*self.sources, *self.targets, *self._internal]

    @property
    def hosts(self) -> list[str]:
        return [host for place in self.places for host in place.hosts]

    @property
    def committed_ends(self) -> dict[TopicPartition, int]:
        return {key: self._run.invariants.committed[key].end_offset for key in self.keys}

    def coordinators(self) -> list[TopicPartition]:
        """The partitions that keep the groups, and those that keep the transactional ids; some more than once."""
        kept = [(CONSUMER_OFFSETS, group) for group in (WORKERS, CARRIERS)]
        kept += [(TRANSACTION_STATE, place.name) for place in self.carriers]
        return [TopicPartition(topic, partition_of(name, COORDINATOR_PARTITIONS)) for topic, name in kept]

    # --- the end -----------------------------------------------------------------------------------------------------

    def converge(self) -> None:
        run_until = self._cluster.run_until
        self._haste.is_on = True
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s=180.0)
        for place in self.places:
            place.alone()
        self._leave(self.writers)
        self._wait_until_committed(self.sources)
        logs = read_logs(self._cluster, OPERATOR, self.sources)
        for group, places in ((WORKERS, self.workers), (CARRIERS, self.carriers)):
            if places:
                self._wait_until_caught_up(group, logs)
        self._leave([*self.workers, *self.carriers])
        self._wait_until_committed(self.targets)
        targets = {
            read_committed: read_logs(self._cluster, OPERATOR, self.targets, read_committed=read_committed)
            for read_committed in (True, False)
        }
        self._wait_for_followers({visible: {**logs, **target} for visible, target in targets.items()})
        self._leave(self.followers)
        self._check(logs, targets[True])

    def _wait_until_caught_up(self, group: str, logs: Mapping[TopicPartition, Sequence[Record]]) -> None:
        """Until a group has processed everything, and has committed that."""
        ends = {key: len(log) for key, log in logs.items() if log}
        until_s = self._cluster.simulation.now_s + CATCH_UP_S_MAX
        while (committed := committed_offsets(self._cluster, OPERATOR, group, list(ends))) != ends:
            assert self._cluster.simulation.now_s < until_s, f"{group} have committed {committed}, not {ends}"
            self._cluster.run(LOOK_S)
            self._check_nobody_failed()

    def _wait_until_committed(self, partitions: Sequence[TopicPartition]) -> None:
        """Until replicas have everything, and no transaction is open."""
        for key in partitions:
            self._cluster.run_until(lambda key=key: is_all_committed(self._cluster, key), timeout_s=120.0)
            self._cluster.run_until(lambda key=key: is_decided(self._cluster, key), timeout_s=120.0)

    def _leave(self, places: Sequence[Place]) -> None:
        """Let all of them end, at once."""
        for place in places:
            place.leave()
        self._until(lambda: not any(place.is_taken for place in places))

    def _until(self, goal: Callable[[], bool]) -> None:
        """Wait for something; whoever failed meanwhile will never do it."""
        failures = self._cluster.simulation.failures
        self._cluster.run_until(lambda: bool(failures) or goal(), timeout_s=END_S_MAX)
        self._check_nobody_failed()

    def _check_nobody_failed(self) -> None:
        for failure in self._cluster.simulation.failures:
            raise ProgramFailed(f"{failure.getErrorMessage()}\n{failure.getTraceback()}")

    def _wait_for_followers(self, logs: Mapping[bool, Mapping[TopicPartition, Sequence[Record]]]) -> None:
        """Until each has come to the end of what it is to see."""
        for place in self.followers:
            application = place.application
            assert isinstance(application, Follower)
            followed = application.followed
            ends = {key: log[-1].offset + 1 for key, log in logs[followed.read_committed].items() if log}
            self._until(partial(followed.has_come_to, ends))
        for followed in self.tellings.followed:
            check_followed(followed, logs[followed.read_committed])

    def _check(
        self,
        sources: Mapping[TopicPartition, Sequence[Record]],
        targets: Mapping[TopicPartition, Sequence[Record]],
    ) -> None:
        assert not self.tellings.contradictions, "; ".join(self.tellings.contradictions)
        check_sent(self.tellings.sent, sources)
        for source, target in zip(self.sources, self.targets, strict=True):
            if self.carriers:
                check_carried(sources[source], targets[target], target)
        workers = self.tellings.groups[WORKERS]
        for key, log in sources.items():
            end = workers.processed_ends.get(key, 0)
            assert end == len(log), f"{key}: {end} of {len(log)} records were processed"
