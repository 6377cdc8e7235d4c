"""Random joins, leaves, crashes and network faults: no partition has two owners, and no commit is lost."""

from __future__ import annotations

from random import Random

import pytest
from group_readers import ALL, KINDS, Owners, Partitions, Reader, coordinator_of, new_brokers, settle
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client_core.errors import ClientError
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.cluster.cluster import SimulatedCluster

UNDELAYED_S_MAX = 0.05
OLD_CONNECTION_S = 30.0
"""Maximum age of a request in flight on an abandoned connection."""

READERS_MAX = 4


class Commits:
    """Acknowledged commits of one group.

    :ivar contradictions: descriptions of lookups that returned a lower offset than an acknowledged commit.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[TopicPartition, int] = dict.fromkeys((TopicPartition("t", each) for each in ALL), 0)
        self.contradictions: list[str] = []
        self.count = 0
        self._slow_commits: dict[TopicPartition, tuple[int, float]] = {}

    def commit(self, offsets: dict[TopicPartition, int], started_s: float, ended_s: float) -> None:
        """Record an acknowledged commit; if it was slow, a retry may be executed after later commits."""
        self.count += 1
        for each, offset in offsets.items():
            self.acknowledged[each] = max(self.acknowledged[each], offset)
            if ended_s - started_s > UNDELAYED_S_MAX:
                before, at_s = self._slow_commits.get(each, (offset, 0.0))
                self._slow_commits[each] = min(before, offset) if ended_s - at_s < OLD_CONNECTION_S else offset, ended_s

    def floor(self, partition: TopicPartition, now_s: float) -> int:
        """Return the lowest offset at which a reader may start."""
        offset, at_s = self._slow_commits.get(partition, (0, 0.0))
        acknowledged = self.acknowledged[partition]
        is_uncertain = partition in self._slow_commits and now_s - at_s < OLD_CONNECTION_S
        return min(offset, acknowledged) if is_uncertain else acknowledged


class Worker(Reader):
    """A reader that commits regularly, and checks that it finds acknowledged commits of earlier owners."""

    def __init__(self, brokers: SimulatedCluster, name: str, commits: Commits, random: Random, **options: object):
        super().__init__(brokers, name, **options)  # type: ignore[arg-type]
        self.commits, self.random = commits, random
        self.positions: dict[TopicPartition, int] = {}

    async def on_assigned(self, partitions: Partitions) -> None:
        await super().on_assigned(partitions)
        before = {each: self.commits.floor(each, self.brokers.simulation.now_s) for each in partitions}
        try:
            committed_offsets = await self.membership.committed(partitions)
        except ClientError:
            return
        for each in sorted(partitions):
            committed = committed_offsets[each].offset if each in committed_offsets else 0
            if committed < before[each]:
                self.commits.contradictions.append(f"{each}: {self.name} found {committed}, not {before[each]}")
            self.positions[each] = committed

    async def on_revoked(self, partitions: Partitions) -> None:
        self._record_call("revoked", partitions)
        await pause(self.host.runtime.reactor, self.random.choice([0.0, 0.3, 3.0, 15.0]))
        await self.commit(partitions)
        self._remove(partitions)

    async def commit(self, partitions: Partitions) -> None:
        offsets = {each: self.positions[each] + 1 for each in sorted(partitions) if each in self.positions}
        self.positions.update(offsets)
        started_s = self.brokers.simulation.now_s
        try:
            await self.membership.commit({each: CommittedOffset(offset) for each, offset in offsets.items()})
        except (ClientError, CancelledError) as error:
            if isinstance(error, CancelledError):
                raise
            return
        self.commits.commit(offsets, started_s, self.brokers.simulation.now_s)

    def _remove(self, partitions: Partitions) -> None:
        super()._remove(partitions)
        for each in partitions:
            self.positions.pop(each, None)

    def begin(self) -> None:
        self.working = Deferred.fromCoroutine(self._work())
        self.working.addErrback(lambda failure: None if failure.check(CancelledError) else failure)

    def end(self) -> None:
        self.working.cancel()
        self.stop()

    async def _work(self) -> None:
        await self.membership.start()
        while True:
            await pause(self.host.runtime.reactor, 0.5 + self.random.random())
            await self.commit(self.owned)


class Churn:
    """A group with random joins, leaves and failures."""

    def __init__(self, seed: int, kind: str) -> None:
        self.brokers = new_brokers(seed)
        self.random = Random(f"{seed}/churn")
        self.kind = KINDS[kind]
        self.owners, self.commits = Owners(), Commits()
        self.workers: list[Worker] = []
        self.workers_started = 0

    def add_worker(self) -> None:
        self.workers_started += 1
        worker = Worker(
            self.brokers, f"w{self.workers_started}", self.commits, self.random, owners=self.owners, **self.kind
        )
        self.workers.append(worker)
        worker.begin()

    def stop_worker(self) -> None:
        worker = self._pop_random_worker()
        worker.end()
        assert not worker.owned

    def kill_worker(self) -> None:
        self._pop_random_worker().die()

    def suspend_worker(self) -> None:
        """Suspend a reader; other readers may get its partitions when its session has expired."""
        worker = self.random.choice(self.workers)
        worker.host.pause()
        self.owners.release(worker.name, worker.owned)
        self.brokers.run(self.random.choice([2.0, 14.0]))
        self.owners.reclaim(worker.name, worker.owned)
        worker.host.resume()

    def isolate_worker(self) -> None:
        name = self.random.choice(self.workers).name
        self.brokers.simulation.network.isolate(name)
        self.brokers.run(self.random.choice([1.0, 5.0, 20.0]))
        self.brokers.simulation.network.heal()

    def restart_coordinator(self) -> None:
        number = coordinator_of(self.brokers)
        if number == -1:
            return
        self.brokers.brokers[number].kill()
        self.brokers.run(self.random.choice([1.0, 25.0]))
        self.brokers.run_until(self.brokers.brokers[number].start())

    def step(self) -> None:
        possible = [self.add_worker] if len(self.workers) < READERS_MAX else []
        if self.workers:
            possible += [
                self.stop_worker,
                self.kill_worker,
                self.suspend_worker,
                self.isolate_worker,
                self.restart_coordinator,
            ]
        self.random.choice([*possible, *possible[:1]])()
        self.brokers.run(self.random.choice([0.1, 1.0, 10.0]))

    def _pop_random_worker(self) -> Worker:
        return self.workers.pop(self.random.randrange(len(self.workers)))


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(KINDS)))
def test_no_partition_has_two_owners(seed: int, kind: str) -> None:
    """After random events, the remaining members own all partitions, and no partition ever had two owners."""
    run(seed, kind, steps=10)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10, 20))
def test_no_partition_has_two_owners_for_many_seeds(seed: int, kind: str) -> None:
    run(seed, kind, steps=60)


def run(seed: int, kind: str, steps: int) -> None:
    churn = Churn(seed, kind)
    for _ in range(steps):
        churn.step()
        assert churn.owners.contradictions == []
        assert churn.commits.contradictions == []
    if not churn.workers:
        churn.add_worker()
    settle(churn.brokers, *churn.workers, timeout_s=120.0)
    assert churn.commits.count > steps
    while churn.workers:
        churn.stop_worker()
    churn.brokers.stop()
