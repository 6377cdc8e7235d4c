"""Simulated hosts with disks, clocks and reactors, joined by one network and one virtual clock, from one seed.

simulation = Simulation(seed=1)
broker, client = simulation.host("broker-1"), simulation.host("client")
... build things from broker.runtime and client.runtime ...
simulation.run_until(deferred)
broker.kill()          # broker.runtime now belongs to the next process on the same disk
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.runtime import Runtime
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.simulator.network import Network
from kreplica.testing.simulator.offload import SimulatedOffload
from kreplica.testing.simulator.reactor import SimulatedReactor
from kreplica.testing.simulator.scheduler import Process, ProcessState, Scheduler

T = TypeVar("T")

START_MS = 1_700_000_000_000
DATA_DIRECTORY = "/data"


@dataclass(slots=True)
class WallClock:
    """Wall clock of one host; assigning to offset or drift makes it jump.

    :param drift: rate error; 1e-4 gains 0.1 ms per second.
    """

    scheduler: Scheduler
    offset_ms: int = 0
    drift: float = 0.0

    def now_ms(self) -> int:
        return START_MS + self.offset_ms + int(self.scheduler.now_s * 1000 * (1 + self.drift))


class Host:
    """Machine that runs one process at a time; its disk and its name outlive its processes.

    :ivar runtime: runtime of the current process; ``kill`` and ``power_loss`` replace it.
    """

    def __init__(self, simulation: Simulation, name: str, disk: MemoryDisk, clock: WallClock) -> None:
        self.name = name
        self.disk = disk
        self.clock = clock
        self._simulation = simulation
        self._process_count = 0
        self._boot_count = 1
        self._random = Random(f"{simulation.seed}/{name}/host")
        self._start_process()

    def _start_process(self) -> None:
        simulation = self._simulation
        self._process_count += 1
        label = f"{self.name}#{self._process_count}"
        self._process = Process(label)
        self.reactor = SimulatedReactor(
            simulation.scheduler, simulation.network, self._process, self.name, simulation.failures.append
        )
        self.offload = SimulatedOffload(
            simulation.scheduler, self._process, Random(f"{simulation.seed}/{label}/offload")
        )
        self.runtime = Runtime(
            reactor=self.reactor,
            disk=self.disk,
            offload=self.offload,
            random=Random(f"{simulation.seed}/{label}"),
            wall_clock_ms=self.clock.now_ms,
            boot_id=f"{self.name}/{self._boot_count}",
            is_simulated=True,
        )

    @property
    def is_paused(self) -> bool:
        return self._process.state is ProcessState.PAUSED

    def kill(self) -> None:
        """Kill the process as ``kill -9`` does: written data stays, and peers see lost connections."""
        self.reactor.kill()
        self.disk.kill()
        self._start_process()

    def power_loss(self, random: Random | None = None) -> None:
        """Restart the machine without a shutdown: unsynced data is lost at random, and peers receive nothing.

        :param random: determines how much is lost; by default, the host's generator.
        """
        self.reactor.power_off()
        self.disk.power_loss(random or self._random)
        self._boot_count += 1
        self._start_process()

    def pause(self) -> None:
        """Stop the process (``SIGSTOP``, a long garbage collection); its kernel still accepts and buffers data."""
        self._simulation.scheduler.pause(self._process)

    def resume(self) -> None:
        """Continue a paused process; events that became due during the pause happen now."""
        self._simulation.scheduler.resume(self._process)


class Simulation:
    """Hosts, network and time; the same seed and program always give the same sequence of events.

    :param trace: called with one line per event.
    :ivar failures: exceptions from protocols, which (as on a real reactor) close only their connection.
    """

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.random = Random(f"{seed}/faults")
        self.scheduler = Scheduler(trace)
        self.network = Network(self.scheduler, Random(f"{seed}/network"))
        self.failures: list[Failure] = []
        self._hosts: dict[str, Host] = {}

    def host(
        self, name: str, *, clock_offset_ms: int = 0, clock_drift: float = 0.0, disk: MemoryDisk | None = None
    ) -> Host:
        """Return the host with this name; the first call creates it.

        :param name: the address under which other hosts connect to it.
        :param disk: by default an empty disk with a durable directory ``/data``.
        """
        host = self._hosts.get(name)
        if host is None:
            clock = WallClock(self.scheduler, clock_offset_ms, clock_drift)
            self.network.add_host(name)
            if disk is None:
                disk = MemoryDisk(clock.now_ms, directories=[DATA_DIRECTORY])
            host = self._hosts[name] = Host(self, name, disk, clock)
        return host

    @property
    def now_s(self) -> float:
        """Virtual time in seconds, from 0."""
        return self.scheduler.now_s

    def step(self) -> bool:
        """Run the next event; return false if no event is left."""
        return self.scheduler.step()

    def run(self, seconds: float) -> None:
        """Run the events of the next ``seconds`` of virtual time."""
        self.scheduler.run(seconds)

    def run_until(
        self, goal: Callable[[], bool] | Deferred[T] | Coroutine[Deferred[Any], Any, T], timeout_s: float = 60.0
    ) -> Any:
        """Run events until a condition holds or a Deferred or coroutine ends; see ``Scheduler.run_until``."""
        return self.scheduler.run_until(goal, timeout_s)
