"""A world from one seed: hosts with their disks, clocks and reactors, one network, one virtual time.

simulation = Simulation(seed=1)
broker, client = simulation.host("broker-1"), simulation.host("client")
... build things from broker.runtime and client.runtime ...
simulation.run_until(deferred)
broker.kill()          # broker.runtime is now that of the next process on the same disk
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
    """A host's clock, wrong by an offset and a rate; both may be changed, and then it jumps.

    :param drift: 1e-4 gains 0.1 ms per second.
    """

    scheduler: Scheduler
    offset_ms: int = 0
    drift: float = 0.0

    def now_ms(self) -> int:
        """Milliseconds since 1970, as this host has it."""
        return START_MS + self.offset_ms + int(self.scheduler.now_s * 1000 * (1 + self.drift))


class Host:
    """A machine that runs one process at a time; its disk and its name outlive them.

    :ivar runtime: that of the process that runs; after ``kill`` and the like, that of the next one.
    """

    def __init__(self, simulation: Simulation, name: str, disk: MemoryDisk, clock: WallClock) -> None:
        self.name = name
        self.disk = disk
        self.clock = clock
        self._simulation = simulation
        self._processes_count = 0
        self._boots_count = 1
        self._random = Random(f"{simulation.seed}/{name}/host")
        self._begin()

    def _begin(self) -> None:
        simulation = self._simulation
        self._processes_count += 1
        label = f"{self.name}#{self._processes_count}"
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
            boot_id=f"{self.name}/{self._boots_count}",
            is_simulated=True,
        )

    @property
    def is_paused(self) -> bool:
        """Whether the process stands still."""
        return self._process.state is ProcessState.PAUSED

    def kill(self) -> None:
        """``kill -9``: what was written stays, peers see lost connections; a new process may begin at once."""
        self.reactor.kill()
        self.disk.kill()
        self._begin()

    def power_loss(self, random: Random | None = None) -> None:
        """The machine goes out and on again: what was not synced is lost at random, peers are not told.

        :param random: what draws how much is lost; the host's own unless given.
        """
        self.reactor.vanish()
        self.disk.power_loss(random or self._random)
        self._boots_count += 1
        self._begin()

    def pause(self) -> None:
        """Stop the process where it is (``SIGSTOP``, a long collection); its kernel goes on accepting and receiving."""
        self._simulation.scheduler.pause(self._process)

    def resume(self) -> None:
        """Let it go on: all that was due happens now."""
        self._simulation.scheduler.resume(self._process)


class Simulation:
    """Hosts, network and time; one seed and one program give one run, event by event.

    :param trace: called with one line per event.
    :ivar failures: exceptions from protocols, which (as on a real reactor) cost only their connection.
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
        """The host of that name, made when it is first asked for.

        :param name: how others connect to it; itself it may call ``127.0.0.1`` too.
        :param disk: an empty one with a durable directory ``/data`` unless given.
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
        """Virtual time, from 0."""
        return self.scheduler.now_s

    def step(self) -> bool:
        """Let the next event happen; false where there is none."""
        return self.scheduler.step()

    def run(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        self.scheduler.run(seconds)

    def run_until(
        self, goal: Callable[[], bool] | Deferred[T] | Coroutine[Deferred[Any], Any, T], timeout_s: float = 60.0
    ) -> Any:
        """Let events happen until a condition holds or a Deferred or coroutine ends; see ``Scheduler.run_until``."""
        return self.scheduler.run_until(goal, timeout_s)
