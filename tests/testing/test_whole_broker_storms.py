"""A simulated broker under load, with one fault of each kind after the other, recovers in the end."""

from __future__ import annotations

import pytest
from broker_runs import EVERY_ACK_SYNCED, CrashRun

from kreplica.testing.simulator.disk import CAPACITY_BYTES

pytestmark = pytest.mark.usefixtures("logged_errors")

FAULT_COUNT = 25
SOAK_SEEDS = range(1000, 1300)
PEERS = ("coordinator", "producer", "consumer-0")


class Storm:
    """Injects faults into one run; each fault ends after a while or with a restart."""

    def __init__(self, run: CrashRun) -> None:
        self.run = run
        self._cluster = run.cluster
        self._network = run.cluster.simulation.network
        self._host = run.machine.host
        self._random = run.random
        self._faults = (
            self.crash,
            self.crash_coordinator,
            self.cut,
            self.drop_connections,
            self.pause,
            self.jump_in_time,
            self.run_out_of_space,
            self.slow_down,
        )

    def one_more(self) -> None:
        """Inject one random fault."""
        self._random.choice(self._faults)()

    def crash(self) -> None:
        self.run.crash(power_loss=self._random.random() < 0.5)

    def crash_coordinator(self) -> None:
        coordinator = self._cluster.zookeeper
        coordinator.power_loss() if self._random.random() < 0.5 else coordinator.kill()
        self._pass()
        self._cluster.run_until(coordinator.start())

    def cut(self) -> None:
        """Cut a link in one or both directions."""
        ends = ["broker-1", self._random.choice(PEERS)]
        self._random.shuffle(ends)
        self._network.cut(*ends, one_way=self._random.random() < 0.5)
        self._pass()
        self._network.heal()

    def drop_connections(self) -> None:
        ends = ["broker-1", self._random.choice((*PEERS, "broker-1"))]
        self._random.shuffle(ends)
        self._network.drop_connections(*ends, one_way=self._random.random() < 0.5)

    def pause(self) -> None:
        self._host.pause()
        self._pass()
        self._host.resume()

    def jump_in_time(self) -> None:
        self._host.clock.offset_ms += self._random.randrange(-100_000, 100_000)

    def run_out_of_space(self) -> None:
        total, free = self._host.disk.usage("/data")
        self._host.disk.capacity_bytes = total - free + self._random.randrange(2000)
        self._pass()
        self._host.disk.capacity_bytes = CAPACITY_BYTES

    def slow_down(self) -> None:
        self._network.slow("broker-1", "producer", (0.001, self._random.choice((0.002, 0.01, 0.2))))

    def _pass(self) -> None:
        """Let time pass, sometimes more than a session timeout or a checkpoint interval."""
        self._cluster.run(self._random.random() * self._random.choice((1.0, 10.0, 30.0, 90.0)))


def storm(seed: int) -> None:
    """Inject all faults, with acks=all or acks=1 and a topic that is synced before acknowledgements."""
    run = CrashRun(seed, partitions=2, acks=-1 if seed % 2 else 1, configs=EVERY_ACK_SYNCED, interval_s=0.1)
    faults = Storm(run)
    for _ in range(FAULT_COUNT):
        run.run_load()
        faults.one_more()
    run.finish()
    run.cluster.run(30.0)  # until lost sessions are replaced
    assert run.producer.resets == 0
    assert run.machine.program.not_ready() == []
    assert run.machine.program.controller.active
    client = run.cluster.client()
    run.cluster.run_until(client.create_topic("made-after"))
    run.cluster.run_until(client.delete_topic("made-after"))
    run.cluster.run_until(client.close())
    run.check()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm(seed: int) -> None:
    """Acknowledged and read records exist once and in order; after the storm, everything works again."""
    storm(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_many_storms(seed: int) -> None:
    storm(seed)
