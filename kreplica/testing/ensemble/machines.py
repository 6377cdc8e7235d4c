"""Hosts of an ensemble's servers, used as the ZooKeeper server of a simulated cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

from twisted.internet.defer import Deferred

from kreplica.runtime.gather import gather
from kreplica.testing.ensemble.ensemble import HOST, Ensemble
from kreplica.testing.ensemble.server import PORT, EnsembleServer
from kreplica.testing.simulator.simulation import Host, Simulation
from kreplica.zookeeper.embedded.tree import Tree


class CommittedState:
    """State with all committed transactions, which any given server may or may not have applied."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble

    @property
    def tree(self) -> Tree:
        return self._ensemble.committed.tree

    def expire(self, session_id: int) -> None:
        """End a session at once, as if its client had been silent for too long; idempotent."""
        self._ensemble.expire(session_id)


class EnsembleProgram:
    """Takes the place of the program of a single ZooKeeper server.

    :ivar serving: the committed state.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.serving: CommittedState | None = CommittedState(ensemble)


def host_name(number: int) -> str:
    return f"{HOST}-{number}"


class EnsembleMachines:
    """Machines of the servers.

    :ivar hosts: the hosts by server number.
    """

    def __init__(self, ensemble: Ensemble, simulation: Simulation) -> None:
        self.ensemble = ensemble
        self.hosts: dict[int, Host] = {number: simulation.host(host_name(number)) for number in ensemble.members}
        self.program = EnsembleProgram(ensemble)
        self._servers: dict[int, EnsembleServer] = {}

    @property
    def connect_string(self) -> str:
        """Value of the brokers' ``zookeeper.connect``."""
        return ",".join(f"{host.name}:{PORT}" for host in self.hosts.values())

    @property
    def running(self) -> bool:
        """True if any server is running."""
        return bool(self._servers)

    def is_running(self, number: int) -> bool:
        return number in self._servers

    def server(self, number: int) -> EnsembleServer:
        """Return the running process of a server."""
        return self._servers[number]

    def server_of_session(self, session_id: int) -> int | None:
        """Return the server to which a session is connected."""
        for number, server in self._servers.items():
            if server.has_session(session_id):
                return number
        return None

    def start(self) -> Deferred[None]:
        """Start the servers that are not running; the Deferred fires when they are ready."""
        return Deferred.fromCoroutine(self._start([number for number in self.hosts if number not in self._servers]))

    async def _start(self, numbers: Sequence[int]) -> None:
        await gather([_wait(self.start_server(number)) for number in numbers])

    def start_server(self, number: int) -> Deferred[None]:
        """Start one server; the Deferred fires when it is ready, and never if it is killed before that."""
        host = self.hosts[number]
        server = self._servers[number] = EnsembleServer(
            host.runtime, self.ensemble, self.ensemble.members[number], host.name
        )
        return server.start()

    def stop(self) -> Deferred[None]:
        """Stop all servers."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for number, server in list(self._servers.items()):
            await server.stop()
            self.kill_server(number)

    def kill(self) -> None:
        """Kill all servers."""
        for number in list(self._servers):
            self.kill_server(number)

    def power_loss(self, random: Random | None = None) -> None:
        """Kill all servers without notifying their peers.  Committed transactions are durable."""
        for number in list(self._servers):
            self.kill_server(number, lambda host: host.power_loss(random))

    def kill_server(self, number: int, terminate: Callable[[Host], None] = Host.kill) -> None:
        """End a server's process."""
        del self._servers[number]
        terminate(self.hosts[number])
        self.ensemble.remove_process(number)


async def _wait(started: Awaitable[None]) -> None:
    await started
