"""Consume, transform and produce exactly once; a second group consumes at least once.

Producers write to a source topic.  A group of processors reads it, and writes transformed records to a target topic in
transactions with the offsets.  Members of the second group read the source and commit after each poll.  At the end the
target must have each record of the source, once and in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.coordination import partition_of
from kreplica.model import TopicPartition
from kreplica.testing.anomalies import report
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION
from kreplica.testing.clients.processor import original
from kreplica.testing.clients.transactional_producer import TransactionSettings
from kreplica.testing.cluster.state import has_no_open_transaction, is_all_committed, is_in_sync
from kreplica.testing.storms.clients.chain_clients import (
    OPERATOR,
    PROCESSORS,
    SESSION_TIMEOUT_MS,
    SOURCE,
    TARGET,
    TRANSACTION_TIMEOUT_MS,
    ChainClients,
)
from kreplica.testing.storms.clients.slots import Slot
from kreplica.testing.storms.cluster_run import ClusterRun
from kreplica.wire import messages

COORDINATOR_PARTITIONS = 2

OVERRIDES = (
    f"offsets.topic.num.partitions={COORDINATOR_PARTITIONS}",
    f"transaction.state.log.num.partitions={COORDINATOR_PARTITIONS}",
    f"group.min.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
"""Broker settings: few partitions of internal topics, and timeouts short enough to expire in every storm."""

CATCH_UP_S_MAX = 300.0
STABLE_S_MAX = 60.0
CHECK_INTERVAL_S = 0.5


class Chain:
    """Companion of a run; the seed selects the numbers of partitions and members, and the producers' protocol.

    :param configs: settings of both topics and, except ``segment.bytes``, of the internal topics.
    :ivar processors: slots of the group with transactions; ``members``: of the other group; ``slots``: of both.
    """

    def __init__(self, run: ClusterRun, replicas: int, configs: Mapping[str, str]) -> None:
        random = Random(f"{run.seed}/chain")
        self._run = run
        self._cluster = run.cluster
        self.clients = clients = ChainClients(run.cluster, random.choice((1, 2, 2, 3)))
        self._internal = [
            TopicPartition(topic, number)
            for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)
            for number in range(COORDINATOR_PARTITIONS)
        ]
        self._make_topics(replicas, configs)
        self._producers = [clients.producer(key) for key in clients.sources]
        self._readers = {
            clients.reader(key, read_committed=isolated): key for key in clients.targets for isolated in (True, False)
        }
        self.processors = [
            self._processor(f"processor-{index}", random) for index in range(random.choice((1, 2, 2, 3)))
        ]
        self.members = [Slot(run, f"member-{index}", clients.committer) for index in range(random.choice((1, 2)))]
        self.slots = [*self.processors, *self.members]
        for slot in self.slots:
            slot.start()

    def _processor(self, name: str, random: Random) -> Slot:
        settings = TransactionSettings(name, TRANSACTION_TIMEOUT_MS, epoch_grows=random.random() < 0.5)
        return Slot(self._run, name, lambda host: self.clients.processor(host, settings))

    def _make_topics(self, replicas: int, configs: Mapping[str, str]) -> None:
        """Create the topics, and make the internal topics as safe as them."""
        run_until = self._cluster.run_until
        for kind in (GROUP, TRANSACTION):
            client = self.clients.coordinator_client(self._cluster.host(OPERATOR), PROCESSORS, kind)
            run_until(client.wait_for_coordinator())
            run_until(client.close())
        admin = self._cluster.client()
        safe = {name: value for name, value in configs.items() if name != "segment.bytes"}
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            run_until(admin.change_settings(topic, safe))
        for topic in (SOURCE, TARGET):
            partitions = len(self.clients.sources)
            run_until(admin.create_topic(topic, partitions, configs, replication_factor=replicas))
        run_until(admin.close())
        histories = {SOURCE: self.clients.source, TARGET: self.clients.target}
        for key in self.keys:
            self._run.invariants.add(key, histories.get(key.topic))

    # --- state for faults --------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[TopicPartition]:
        return [*self.clients.sources, *self.clients.targets, *self._internal]

    @property
    def hosts(self) -> list[str]:
        return [SOURCE, TARGET, *(host for slot in self.slots for host in slot.hosts)]

    def coordinators(self) -> list[TopicPartition]:
        """Return the internal partition of each group and transactional ID, with duplicates."""
        kept = [(CONSUMER_OFFSETS, group) for group in self.clients.groups]
        kept += [(TRANSACTION_STATE, slot.name) for slot in self.processors]
        return [TopicPartition(topic, partition_of(name, COORDINATOR_PARTITIONS)) for topic, name in kept]

    # --- end of the run ----------------------------------------------------------------------------------------------

    def converge(self) -> None:
        run_until = self._cluster.run_until
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s=180.0)
        for producer in self._producers:
            run_until(producer.finish(), timeout_s=300.0)
        for slot in self.slots:
            slot.keep_newest()
        run_until(self._has_caught_up, CATCH_UP_S_MAX)
        self._wait_until_stable()
        for slot in self.slots:
            slot.leave()
        run_until(lambda: not any(slot.is_occupied for slot in self.slots), timeout_s=120.0)
        for key in self.keys:
            run_until(lambda key=key: is_all_committed(self._cluster, key), timeout_s=120.0)
            run_until(lambda key=key: has_no_open_transaction(self._cluster, key), timeout_s=120.0)
        for reader, key in self._readers.items():
            end = self.clients.end_of(key)
            run_until(lambda reader=reader, end=end: reader.position >= end, timeout_s=120.0)
            run_until(reader.finish(), timeout_s=120.0)
        self._check()

    def _has_caught_up(self) -> bool:
        """Return True if both groups have committed the end of the source."""
        return all(
            history.acknowledged.get(key, 0) >= self.clients.source.ends(key.partition)[0]
            for history in self.clients.groups.values()
            for key in self.clients.sources
        )

    def _wait_until_stable(self) -> None:
        """Run until each group is stable and has one member per slot."""
        until_s = self._cluster.simulation.now_s + STABLE_S_MAX
        for group, slots in zip(self.clients.groups, (self.processors, self.members), strict=True):
            expected = ("Stable", len(slots))
            while (found := self._state_and_size(group)) != expected:
                assert self._cluster.simulation.now_s < until_s, f"group {group!r} is {found}, not {expected}"
                self._cluster.run(CHECK_INTERVAL_S)

    def _state_and_size(self, group: str) -> tuple[str, int]:
        client = self.clients.coordinator_client(self._cluster.host(OPERATOR), group, GROUP)
        response = self._cluster.run_until(client.ask(messages.DESCRIBE_GROUPS, {"groups": [group]}))
        self._cluster.run_until(client.close())
        row = response.body["groups"][0]
        return row["group_state"], len(row["members"])

    def _check(self) -> None:
        clients = self.clients
        assert not clients.contradictions, "; ".join(clients.contradictions)
        report(clients.source.observations).check()
        report(clients.target.observations).check()
        resets = [producer.resets for producer in self._producers]
        assert not any(resets), f"brokers had lost the state of producers: {resets}"
        for source, target in zip(clients.sources, clients.targets, strict=True):
            expected = [
                b"%d/%d" % (source.partition, number) for number in range(clients.source.sent[source.partition])
            ]
            copied = [original(value) for value in clients.committed_values(target)]
            assert copied == expected, f"{target}: {_difference(expected, copied)}"


def _difference(expected: list[bytes], copied: list[bytes]) -> str:
    for index, (wanted, found) in enumerate(zip(expected, copied, strict=False)):
        if wanted != found:
            neighborhood = copied[max(index - 3, 0) : index + 3]
            return f"record {index} is a copy of {found!r}, not of {wanted!r}; records around it: {neighborhood}"
    return f"{len(copied)} of {len(expected)} records were copied"
