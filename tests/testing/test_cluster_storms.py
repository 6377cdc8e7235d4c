"""Three replicas under load and every fault there is, several at a time, from many seeds; then all is well again."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest
from cluster_runs import replicated, seeds, traced_run
from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.testing.disk import CAPACITY_BYTES
from kreplica.testing.storms.replicated_run import SAFE, ReplicatedRun
from kreplica.testing.wire_client import WireClient

# Coroutines of processes that were killed are thrown away in the middle of whatever they awaited.
pytestmark = pytest.mark.filterwarnings("ignore:.*<coroutine object:pytest.PytestUnraisableExceptionWarning")

FAULTS_COUNT = 14
AT_ONCE_MAX = 3
REPLICAS = 3
SOAK_SEEDS = range(1000, 1400)
SYNCED = {**SAFE, "flush.messages": "1"}

End = Callable[[], None]
"""What ends a fault."""


class Storm:
    """Faults that overlap; whatever loses power loses only what another in-sync replica keeps, or what it never had to
    keep (``flush.messages=1``)."""

    def __init__(self, run: ReplicatedRun, *, synced: bool) -> None:
        self.run = run
        self._cluster = run.cluster
        self._network = run.network
        self._random = run.random
        self._synced = synced
        self._ends: list[tuple[str, End]] = []
        self._faults: dict[str, Callable[[], End | None]] = {
            "kill": self.kill,
            "lose power": self.lose_power,
            "bounce": self.bounce,
            "kill all": self.kill_all,
            "stop": self.stop,
            "cut from coordinator": self.cut_from_coordinator,
            "cut brokers": self.cut_brokers,
            "isolate": self.isolate,
            "cut from client": self.cut_from_client,
            "drop connections": self.drop_connections,
            "expire session": self.expire_session,
            "pause": self.pause,
            "slow down": self.slow_down,
            "run out of space": self.run_out_of_space,
            "jump in time": self.jump_in_time,
            "restart coordinator": self.restart_coordinator,
            "fail to sync": self.fail_to_sync,
        }
        if len(self._cluster.brokers) > REPLICAS:
            self._faults |= {"reassign": self.reassign, "reassign again": self.reassign}

    def blow(self) -> None:
        """All the faults of one run."""
        for _ in range(FAULTS_COUNT):
            self._pass()
            while self._ends and (len(self._ends) >= AT_ONCE_MAX or self._random.random() < 0.5):
                self._end(self._random.randrange(len(self._ends)))
            name = self._random.choice(list(self._faults))
            self.run.tell(name)
            end = self._faults[name]()
            if end is not None:
                self._ends.append((name, end))
        while self._ends:
            self._pass()
            self._end(0)

    def _end(self, index: int) -> None:
        name, end = self._ends.pop(index)
        self.run.tell(f"end of: {name}")
        end()

    def _pass(self) -> None:
        """Some time, now and then longer than a session or than the lag limit; then stop in the middle of anything."""
        self._cluster.run(self._random.random() * self._random.choice((0.1, 1.0, 5.0, 12.0)))
        self.run.steps(self._random.randrange(200))

    # --- machines ----------------------------------------------------------------------------------------------------

    def _some(self) -> int | None:
        """A broker that runs: the leader and the controller more often than the others."""
        running = [broker for broker, machine in self._cluster.brokers.items() if machine.running]
        special = [broker for broker in (self.run.leader(), self._cluster.controller()) if broker in running]
        choices = [*running, *special]
        return self._random.choice(choices) if choices else None

    def kill(self) -> End | None:
        broker = self._some()
        if broker is None:
            return None
        self.run.kill(broker)
        return lambda: self.run.launch(broker)

    def lose_power(self) -> End | None:
        broker = self._some()
        if broker is None or not (self._synced or self.run.survives(broker)):
            return None
        self.run.lose_power(broker)
        return lambda: self.run.launch(broker)

    def bounce(self) -> End | None:
        broker = self._some()
        if broker is not None:
            self.run.kill(broker)
            self.run.launch(broker)
        return None

    def kill_all(self) -> End:
        for broker, machine in self._cluster.brokers.items():
            if machine.running:
                self.run.kill(broker)
        order = self._random.sample(sorted(self._cluster.brokers), len(self._cluster.brokers))

        def end() -> None:
            for broker in order:
                self.run.launch(broker)

        return end

    def stop(self) -> End | None:
        broker = self._some()
        if broker is None:
            return None
        program = self.run.machine(broker).program
        self.run.begin_to_stop(broker)

        def end() -> None:
            machine = self.run.machine(broker)
            if machine.running and machine.program is program:
                self.run.kill(broker)  # it had time enough
            self.run.launch(broker)

        return end

    def pause(self) -> End | None:
        broker = self._some()
        if broker is None:
            return None
        host = self.run.machine(broker).host
        host.pause()
        return host.resume

    def restart_coordinator(self) -> None:
        coordinator = self._cluster.coordinator
        coordinator.power_loss() if self._random.random() < 0.5 else coordinator.kill()
        self._cluster.run(self._random.random() * self._random.choice((1.0, 10.0)))
        self._cluster.run_until(coordinator.start())

    # --- the network -------------------------------------------------------------------------------------------------

    def _cut(self, a: str, b: str) -> End:
        ends = [a, b]
        self._random.shuffle(ends)
        self._network.cut(*ends, one_way=self._random.random() < 0.3)
        return lambda: self._network.heal(a, b)

    def cut_from_coordinator(self) -> End | None:
        broker = self._some()
        return None if broker is None else self._cut(f"broker-{broker}", "coordinator")

    def cut_brokers(self) -> End:
        a, b = self._random.sample(sorted(self._cluster.brokers), 2)
        return self._cut(f"broker-{a}", f"broker-{b}")

    def cut_from_client(self) -> End:
        broker = self._random.choice(sorted(self._cluster.brokers))
        return self._cut(f"broker-{broker}", self._random.choice(self.run.clients))

    def isolate(self) -> End | None:
        broker = self._some()
        if broker is None:
            return None
        self._network.isolate(f"broker-{broker}")
        return lambda: self._network.heal(f"broker-{broker}")

    def drop_connections(self) -> None:
        hosts = ["coordinator", *self.run.clients, *(f"broker-{broker}" for broker in self._cluster.brokers)]
        a, b = self._random.sample(hosts, 2)
        self._network.drop_connections(a, b, one_way=self._random.random() < 0.5)

    def expire_session(self) -> None:
        broker = self._some()
        if broker is not None and self._cluster.coordinator.running:
            self._cluster.expire_session(broker)

    def slow_down(self) -> End:
        hosts = ["coordinator", *(f"broker-{broker}" for broker in self._cluster.brokers)]
        a, b = self._random.sample(hosts, 2)
        self._network.slow(a, b, (0.001, self._random.choice((0.01, 0.2, 1.0))))
        return lambda: self._network.slow(a, b, self._network.latency_s)

    # --- hosts -------------------------------------------------------------------------------------------------------

    def run_out_of_space(self) -> End:
        disk = self.run.machine(self._random.choice(sorted(self._cluster.brokers))).host.disk
        total, free = disk.usage("/data")
        disk.capacity_bytes = total - free + self._random.randrange(3000)

        def end() -> None:
            disk.capacity_bytes = CAPACITY_BYTES

        return end

    def fail_to_sync(self) -> End | None:
        """Its directory goes offline, and stays so until a restart with a mended disk."""
        broker = self._some()
        if broker is None:
            return None
        disk = self.run.machine(broker).host.disk
        disk.fail("sync", "/data/logs/*", errno.EIO, times=1)

        def end() -> None:
            disk.mend()
            if self.run.machine(broker).running:
                self.run.kill(broker)
            self.run.launch(broker)

        return end

    def reassign(self) -> None:
        """Have a partition's replicas moved, or take that back; no answer comes where the controller dies."""
        controller = self._cluster.controller()
        if controller is None:
            return
        key = self._random.choice(self.run.keys)
        target = self._random.sample(sorted(self._cluster.brokers), REPLICAS) if self._random.random() < 0.8 else None
        self.run.tell(f"{key} to {target}")
        client = self._cluster.client(broker=controller)
        Deferred.fromCoroutine(_reassign(client, key, target))

    def jump_in_time(self) -> None:
        clock = self.run.machine(self._random.choice(sorted(self._cluster.brokers))).host.clock
        clock.offset_ms += self._random.randrange(-100_000, 100_000)


async def _reassign(client: WireClient, key: TopicPartition, target: Sequence[int] | None) -> None:
    try:
        await client.reassign(key.topic, key.partition, target)
    except (ClientError, KafkaError):
        pass  # nobody is obliged to take it, and its answer may be lost
    await client.close()


def storm(seed: int) -> None:
    """One run: faults everywhere, then everything must come back.  Every other one has a fourth broker to move to."""
    synced, brokers = seed % 3 == 0, REPLICAS + seed % 2
    with replicated(seed, lambda s: traced_run(
            s,
            brokers=brokers,
            configs=SYNCED if synced else SAFE,
            overrides=["replica.fetch.wait.max.ms=100"],
        )) as run:
        Storm(run, synced=synced).blow()
        run.converge()


@pytest.mark.parametrize("seed", seeds(range(1, 11)))
def test_a_storm(seed: int) -> None:
    """What was acknowledged or read is there, once and in order; when it is over, all replicas are in sync."""
    storm(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_many_storms(seed: int) -> None:
    """The same from hundreds of seeds."""
    storm(seed)
