"""Simulated cluster in virtual time, from one seed: a ZooKeeper server, brokers and clients.

cluster = SimulatedCluster(seed=1, brokers=3)
cluster.start()
client = cluster.client(broker=2)
cluster.run_until(client.create_topic("orders"))
cluster.brokers[2].power_loss()
cluster.run_until(cluster.brokers[2].start())

Inject network, clock and disk faults through ``cluster.simulation`` and the ``host`` of each machine. The modules
``state`` and ``invariants`` inspect the brokers' state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred

from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.service.broker.coordinators import internal_topic_settings
from kreplica.service.composition.broker import Broker
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster import protection
from kreplica.testing.cluster.secured_listeners import SESSION_LIFETIME_MS, secured_settings
from kreplica.testing.cluster.state import MachineView, ZooKeeperProgram, active_replicas, is_in_sync, state_of
from kreplica.testing.ensemble.ensemble import Ensemble, EnsembleOptions
from kreplica.testing.ensemble.machines import EnsembleMachines
from kreplica.testing.simulator.simulation import DATA_DIRECTORY, Host, Simulation
from kreplica.zookeeper.embedded.disk_store import DiskStore
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from kreplica.zookeeper.embedded.settings import AnonymousClients, ZooKeeperServerSettings

ZOOKEEPER_PORT = 2181
ZOOKEEPER_HOST = "coordinator"
"""Must not change: a host's name seeds its random numbers, and recorded seeds must still reproduce the same runs."""
BROKER_PORT = 9092
LOG_DIRECTORY = f"{DATA_DIRECTORY}/logs"


class Program(Protocol):
    """A program that a machine runs: a broker, a ZooKeeper server, or both."""

    def start(self) -> Awaitable[None]: ...

    def stop(self) -> Awaitable[None]: ...


class ZooKeeperMachine(MachineView[ZooKeeperProgram], Protocol):
    """Machine of the embedded ZooKeeper server, or machines of a simulated ensemble."""

    def start(self) -> Deferred[None]: ...

    def stop(self) -> Deferred[None]: ...

    def kill(self) -> None: ...

    def power_loss(self) -> None: ...


ProgramT = TypeVar("ProgramT", bound=Program)


class Machine(Generic[ProgramT]):
    """A host and its program. Each start builds a new program; the disk is kept."""

    def __init__(self, host: Host, build: Callable[[Runtime], ProgramT]) -> None:
        self.host = host
        self._build = build
        self._program: ProgramT | None = None

    @property
    def program(self) -> ProgramT:
        """The running program."""
        assert self._program is not None, f"no program runs on {self.host.name}"
        return self._program

    @property
    def running(self) -> bool:
        return self._program is not None

    def start(self) -> Deferred[None]:
        """Start the program; the Deferred fires when it is ready, and never if it is killed before that."""
        assert self._program is None, f"a program is already running on {self.host.name}"
        program = self._program = self._build(self.host.runtime)
        return Deferred.fromCoroutine(_wait(program.start()))

    def stop(self) -> Deferred[None]:
        """Stop the program gracefully, and then end its process."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.program.stop()
        self.kill()

    def kill(self) -> None:
        """Kill the process as ``kill -9`` does: written data stays."""
        self._program = None
        self.host.kill()

    def power_loss(self, random: Random | None = None) -> None:
        """Cut the machine's power: unsynced data is kept, lost or torn at random, and peers receive nothing.

        :param random: random numbers that decide how much is lost; those of the host by default.
        """
        self._program = None
        self.host.power_loss(random)


async def _wait(work: Awaitable[None]) -> None:
    await work


class SimulatedCluster:
    """Cluster on the hosts ``ZOOKEEPER_HOST`` and ``broker-1`` to ``broker-N``, with further hosts for clients.

    :param overrides: settings of every broker, each as ``name=value``.
    :param racks: rack of each broker; brokers that are not listed have none.
    :param ensemble: options of an ensemble of ZooKeeper servers; None for one ZooKeeper server.
    :param protected: brokers authenticate to the ZooKeeper server and protect their znodes; a single server then
        rejects other clients.
    :param secured: adds listeners with authentication (``secured_listeners``) and ACLs.
    :param session_lifetime_ms: lifetime of authenticated sessions on these listeners.
    :param trace: called with one line per event.
    :ivar zookeeper: the ZooKeeper server, or the whole ensemble.
    :ivar ensemble: servers of the ensemble; None without one.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 1,
        overrides: Sequence[str] = (),
        racks: Mapping[int, str] | None = None,
        ensemble: EnsembleOptions | None = None,
        protected: bool = False,
        secured: bool = False,
        session_lifetime_ms: int = SESSION_LIFETIME_MS,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        defaults = [f"{name}={value}" for name, value in internal_topic_settings(brokers).items()]
        per_broker = {number: [f"broker.rack={rack}"] for number, rack in (racks or {}).items()}
        if secured:
            for number in range(1, brokers + 1):
                per_broker.setdefault(number, []).extend(secured_settings(number, BROKER_PORT, session_lifetime_ms))
        self.simulation = Simulation(seed, trace)
        self.ensemble: EnsembleMachines | None = None
        self.zookeeper: ZooKeeperMachine
        connect_settings = list(protection.OVERRIDES) if protected else []
        if ensemble is None:
            settings = ZooKeeperServerSettings(users=protection.USERS, anonymous=AnonymousClients.NONE)
            build = partial(_zookeeper, settings=settings if protected else None)
            self.zookeeper = Machine(self.simulation.host(ZOOKEEPER_HOST), build)
        else:
            ensemble = replace(ensemble, users=protection.USERS) if protected else ensemble
            shared = Ensemble(seed, self.simulation.scheduler, ensemble)
            self.zookeeper = self.ensemble = EnsembleMachines(shared, self.simulation)
            connect_settings.append(f"zookeeper.connect={self.ensemble.connect_string}")
        common = [*defaults, *connect_settings]
        self.brokers = {
            number: Machine(
                self.simulation.host(f"broker-{number}"),
                _broker(broker_settings(number, [*common, *per_broker.get(number, ()), *overrides])),
            )
            for number in range(1, brokers + 1)
        }
        self._client_count = 0

    def start(self) -> None:
        """Start the ZooKeeper server, then the brokers one after another; return when they are ready."""
        machines: list[ZooKeeperMachine | Machine[Broker]] = [self.zookeeper, *self.brokers.values()]
        for machine in machines:
            self.run_until(machine.start())

    def stop(self) -> None:
        """Stop the running brokers in order, then the ZooKeeper server."""
        machines: list[ZooKeeperMachine | Machine[Broker]] = [*self.brokers.values(), self.zookeeper]
        for machine in machines:
            if machine.running:
                self.run_until(machine.stop())

    @property
    def zookeeper_hosts(self) -> list[str]:
        """Names of the hosts on which the ZooKeeper servers run."""
        return [ZOOKEEPER_HOST] if self.ensemble is None else [host.name for host in self.ensemble.hosts.values()]

    def host(self, name: str) -> Host:
        """Return the host with this name, which the test may use for its own program."""
        return self.simulation.host(name)

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for a Kafka client that runs on a host of this cluster."""
        return ",".join(f"broker-{number}:{BROKER_PORT}" for number in self.brokers)

    def client(self, *, broker: int = 1) -> WireClient:
        """Create a client of one broker, on its own host."""
        self._client_count += 1
        host = self.simulation.host(f"client-{self._client_count}")
        return WireClient(host.reactor, f"broker-{broker}", BROKER_PORT, client_id=host.name)

    def leader_client(self, topic: str, partition: int, *, name: str) -> LeaderClient:
        """Create a client of the leader of a partition, on the host ``name``."""
        host = self.simulation.host(name)
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.brokers]
        return LeaderClient(host.reactor, brokers, topic, partition, client_id=name)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the partition's leader according to its state znode; -1 for none."""
        state = state_of(self, TopicPartition(topic, partition))
        return -1 if state is None else state.leader

    def wait_in_sync(self, topic: str, partitions: Iterable[int], timeout_s: float = 120.0) -> None:
        """Run until every partition has a leader and all its live replicas are in sync."""
        keys = [TopicPartition(topic, partition) for partition in partitions]
        self.run_until(lambda: all(is_in_sync(self, key) for key in keys), timeout_s)

    def wait_log_end_offsets(self, key: TopicPartition, end_offset: int, timeout_s: float = 120.0) -> None:
        """Run until the log of every replica ends at ``end_offset``.

        :raise AssertionError: contains the log end offsets of the replicas.
        """

        def end_offsets() -> dict[int, int]:
            return {broker: partition.log.log_end_offset for broker, partition in active_replicas(self, key)}

        try:
            self.run_until(lambda: set(end_offsets().values()) == {end_offset}, timeout_s)
        except TimeoutError:
            raise AssertionError(f"{key}: replicas end at {end_offsets()}, not at {end_offset}") from None

    def controller(self) -> int | None:
        """Return the broker that considers itself the active controller; if several do, that with the latest epoch."""
        running = [(number, machine.program.controller) for number, machine in self.brokers.items() if machine.running]
        active = [
            (controller.context.controller_epoch, number)
            for number, controller in running
            if controller.active and controller.context
        ]
        return max(active)[1] if active else None

    def expire_session(self, broker: int) -> None:
        """Make the ZooKeeper server end a live broker's session; the broker notices this at its next request."""
        serving = self.zookeeper.program.serving
        assert serving is not None, "the ZooKeeper server is not serving"
        serving.expire(self.brokers[broker].program.client.session_id)

    def run(self, seconds: float) -> None:
        """Run the events of the next ``seconds`` of virtual time."""
        self.simulation.run(seconds)

    def run_until(self, goal: Any, timeout_s: float = 60.0) -> Any:
        """Run events until a condition holds or a Deferred or coroutine ends; return its result."""
        return self.simulation.run_until(goal, timeout_s)


def broker_settings(number: int, overrides: Sequence[str] = ()) -> BrokerSettings:
    return BrokerSettings.from_text(
        f"broker.id={number}\n"
        f"listeners=PLAINTEXT://broker-{number}:{BROKER_PORT}\n"
        f"log.dirs={LOG_DIRECTORY}\n"
        f"zookeeper.connect={ZOOKEEPER_HOST}:{ZOOKEEPER_PORT}\n"
        "kreplica.controller.journal.max.bytes=0\n",  # no journal: a run can be repeated from its seed
        overrides,
        origin="simulation",
    )


def _broker(settings: BrokerSettings) -> Callable[[Runtime], Broker]:
    return lambda runtime: Broker(runtime, settings)


def _zookeeper(runtime: Runtime, settings: ZooKeeperServerSettings | None) -> EmbeddedZooKeeper:
    return EmbeddedZooKeeper(
        runtime,
        DATA_DIRECTORY,
        port=ZOOKEEPER_PORT,
        interface=ZOOKEEPER_HOST,
        store=DiskStore(DATA_DIRECTORY, runtime.disk, runtime.offload),
        settings=settings,
    )
