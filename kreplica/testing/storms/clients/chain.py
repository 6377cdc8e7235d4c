"""Consume, transform, produce, exactly once; and a plain group beside, at least once.

A source topic is written to all the time.  A group of processors reads it, and writes what they make of it to a target
topic, in transactions with their offsets.  Members of a second group read the source too, and commit after each poll.
Whatever happens to brokers and to members: in the target stands each record of the source, once and in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.coordination import partition_of
from kreplica.model import TopicPartition
from kreplica.testing.anomalies import report
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION
from kreplica.testing.clients.processor import original
from kreplica.testing.clients.transactional_producer import TransactionSettings
from kreplica.testing.cluster.state import is_all_committed, is_decided, is_in_sync
from kreplica.testing.storms.clients.chain_clients import (
    OPERATOR,
    PROCESSORS,
    SESSION_TIMEOUT_MS,
    SOURCE,
    TARGET,
    TRANSACTION_TIMEOUT_MS,
    ChainClients,
)
from kreplica.testing.storms.clients.seats import Seat
from kreplica.wire import messages

if TYPE_CHECKING:
    from kreplica.testing.storms.replicated_run import ReplicatedRun

COORDINATOR_PARTITIONS = 2

OVERRIDES = (
    f"offsets.topic.num.partitions={COORDINATOR_PARTITIONS}",
    f"transaction.state.log.num.partitions={COORDINATOR_PARTITIONS}",
    f"group.min.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
"""Settings of every broker: few partitions of internal topics, and time-outs that have their say in every storm."""

CATCH_UP_S_MAX = 300.0
STABLE_S_MAX = 60.0
LOOK_S = 0.5


class Chain:
    """How much there is of it is chosen by the seed: partitions, members, and which protocol their producers speak.

    :param configs: settings of both topics; but for the size of segments, of the coordinators' topics too.
    :ivar processors: who works in transactions, and ``members`` who does not; ``seats`` are those of both.
    """

    def __init__(self, run: ReplicatedRun, replicas: int, configs: Mapping[str, str]) -> None:
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
        self.members = [Seat(run, f"member-{index}", clients.committer) for index in range(random.choice((1, 2)))]
        self.seats = [*self.processors, *self.members]
        for seat in self.seats:
            seat.begin()

    def _processor(self, name: str, random: Random) -> Seat:
        settings = TransactionSettings(name, TRANSACTION_TIMEOUT_MS, epoch_grows=random.random() < 0.5)
        return Seat(self._run, name, lambda host: self.clients.processor(host, settings))

    def _make_topics(self, replicas: int, configs: Mapping[str, str]) -> None:
        """Also those of the coordinators, from which no single failure may take anything either."""
        run_until = self._cluster.run_until
        for kind in (GROUP, TRANSACTION):
            client = self.clients.coordinator_client(self._cluster.host(OPERATOR), PROCESSORS, kind)
            run_until(client.found())
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

    # --- what faults look for ----------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[TopicPartition]:
        """Of all partitions, those of the coordinators too."""
        return [*self.clients.sources, *self.clients.targets, *self._internal]

    @property
    def hosts(self) -> list[str]:
        return [SOURCE, TARGET, *(host for seat in self.seats for host in seat.hosts)]

    @property
    def committed_ends(self) -> dict[TopicPartition, int]:
        return {key: self._run.invariants.committed[key].end_offset for key in self.keys}

    def coordinators(self) -> list[TopicPartition]:
        """The partitions that keep the groups, and those that keep the transactional ids; some more than once."""
        kept = [(CONSUMER_OFFSETS, group) for group in self.clients.groups]
        kept += [(TRANSACTION_STATE, seat.name) for seat in self.processors]
        return [TopicPartition(topic, partition_of(name, COORDINATOR_PARTITIONS)) for topic, name in kept]

    # --- the end -----------------------------------------------------------------------------------------------------

    def converge(self) -> None:
        run_until = self._cluster.run_until
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s=180.0)
        for producer in self._producers:
            run_until(producer.finish(), timeout_s=300.0)
        for seat in self.seats:
            seat.alone()
        run_until(self._has_caught_up, CATCH_UP_S_MAX)
        self._wait_until_stable()
        for seat in self.seats:
            seat.leave()
        run_until(lambda: not any(seat.is_taken for seat in self.seats), timeout_s=120.0)
        for key in self.keys:
            run_until(lambda key=key: is_all_committed(self._cluster, key), timeout_s=120.0)
            run_until(lambda key=key: is_decided(self._cluster, key), timeout_s=120.0)
        for reader, key in self._readers.items():
            end = self.clients.end_of(key)
            run_until(lambda reader=reader, end=end: reader.position >= end, timeout_s=120.0)
            run_until(reader.finish(), timeout_s=120.0)
        self._check()

    def _has_caught_up(self) -> bool:
        """Whether both groups have committed all that there is."""
        return all(
            history.acknowledged.get(key, 0) >= self.clients.source.ends(key.partition)[0]
            for history in self.clients.groups.values()
            for key in self.clients.sources
        )

    def _wait_until_stable(self) -> None:
        """Until each group has as many members as work for it, and nobody waits for anybody."""
        until_s = self._cluster.simulation.now_s + STABLE_S_MAX
        for group, seats in zip(self.clients.groups, (self.processors, self.members), strict=True):
            expected = ("Stable", len(seats))
            while (found := self._described(group)) != expected:
                assert self._cluster.simulation.now_s < until_s, f"group {group!r} is {found}, not {expected}"
                self._cluster.run(LOOK_S)

    def _described(self, group: str) -> tuple[str, int]:
        """A group's state, and how many members it has."""
        client = self.clients.coordinator_client(self._cluster.host(OPERATOR), group, GROUP)
        answered = self._cluster.run_until(client.ask(messages.DESCRIBE_GROUPS, {"groups": [group]}))
        self._cluster.run_until(client.close())
        row = answered.body["groups"][0]
        return row["group_state"], len(row["members"])

    def _check(self) -> None:
        clients = self.clients
        assert not clients.contradictions, "; ".join(clients.contradictions)
        report(clients.source.told).check()
        report(clients.target.told).check()
        resets = [producer.resets for producer in self._producers]
        assert not any(resets), f"producers were told that their records are gone: {resets}"
        for source, target in zip(clients.sources, clients.targets, strict=True):
            expected = [
                b"%d/%d" % (source.partition, number) for number in range(clients.source.sent[source.partition])
            ]
            made = [original(value) for value in clients.committed_values(target)]
            assert made == expected, f"{target}: {_difference(expected, made)}"


def _difference(expected: list[bytes], made: list[bytes]) -> str:
    for index, (wanted, found) in enumerate(zip(expected, made, strict=False)):
        if wanted != found:
            return f"record {index} is made of {found!r}, not of {wanted!r}; {made[max(index - 3, 0) : index + 3]}"
    return f"{len(made)} records were made of {len(expected)}"
