"""Several brokers in one process, each on a virtual host; each can be killed, paused and isolated separately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from kreplica.admin.http.problems import Problem
from kreplica.admin.resources.standalone import DEAD, ISOLATED, PAUSED, RUNNING, BrokerState
from kreplica.errors import KreplicaError, reason_of
from kreplica.runtime import Runtime
from kreplica.runtime.gather import gather
from kreplica.runtime.hosts.host_reactor import HostReactor
from kreplica.runtime.hosts.loopback import Loopback
from kreplica.runtime.hosts.machine import KilledWhileStarting, Machine, ProgramResources, real_resources
from kreplica.runtime.pause import pause
from kreplica.service.composition.broker import Broker
from kreplica.service.composition.stopping import stop_all

log = Logger()


class HostedBrokers:
    """The brokers of one process.

    :param runtime: the process's runtime.
    :param build: creates a broker from its ID and the runtime of its host.
    :ivar machines: the machine of each broker, by broker ID; only this class may change them and ``loopback``.
    """

    def __init__(self, runtime: Runtime, numbers: Iterable[int], build: Callable[[int, Runtime], Broker]) -> None:
        self._runtime = runtime
        self._stopping = False
        self._on_change: list[Callable[[int], None]] = []
        self.loopback = Loopback()
        self.machines = {number: self._machine(number, build) for number in numbers}

    def _machine(self, number: int, build: Callable[[int, Runtime], Broker]) -> Machine[Broker]:
        reactor, boot_id = self._runtime.reactor, self._runtime.boot_id

        def create_resources(host: HostReactor) -> ProgramResources:
            return real_resources(host, reactor, boot_id)

        name = f"broker-{number}"
        return Machine(reactor, name, self.loopback, lambda runtime: build(number, runtime), create_resources)

    def on_change(self, callback: Callable[[int], None]) -> None:
        """Register a callback for each broker that an admin request kills, pauses, resumes, isolates or heals."""
        self._on_change.append(callback)

    def running(self) -> Mapping[int, Broker]:
        """Return the brokers that are running and not paused; isolated brokers come last."""
        serving = {
            number: machine
            for number, machine in self.machines.items()
            if machine.running and not machine.starting and not machine.paused
        }
        order = sorted(serving, key=lambda number: (self.loopback.is_isolated(serving[number].name), number))
        return {number: serving[number].program for number in order}

    def is_isolated(self, broker_id: int) -> bool:
        """Return True if a broker is isolated."""
        return self.loopback.is_isolated(self.machines[broker_id].name)

    # --- all brokers -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all brokers; return when they are ready.

        :raise KreplicaError: a broker cannot start; the caller must then stop them all.
        """
        # The first broker starts alone and becomes the controller, which the others then find.
        first, *others = self.machines.values()
        await first.start()
        await gather(machine.start() for machine in others)

    async def stop(self) -> None:
        """End all isolations and pauses, then stop the brokers gracefully."""
        self._stopping = True
        self.loopback.heal()
        for machine in self.machines.values():
            machine.resume()
        await stop_all(*(machine.stop for machine in reversed(self.machines.values())))

    # --- one broker --------------------------------------------------------------------------------------------------

    def states(self) -> Mapping[int, BrokerState]:
        return {number: self._state(machine) for number, machine in self.machines.items()}

    def _state(self, machine: Machine[Broker]) -> BrokerState:
        if not machine.running or machine.starting:
            return BrokerState(DEAD, machine.starting)
        if machine.paused:
            return BrokerState(PAUSED)
        return BrokerState(ISOLATED if self.loopback.is_isolated(machine.name) else RUNNING)

    async def do(self, action: str, broker_id: int) -> None:
        # The broker may be handling this very request: let that event end before its state changes.
        await pause(self._runtime.reactor, 0)
        if self._stopping:
            raise Problem(503, "BROKER_NOT_AVAILABLE", "the process is stopping")
        log.info("{action} broker {broker}, requested by the admin API", action=action, broker=broker_id)
        machine = self.machines[broker_id]
        if action == "start":
            await self._start(broker_id, machine)
        else:
            self._change(action, machine)
            for callback in list(self._on_change):
                callback(broker_id)
            await machine.when_released()

    def _change(self, action: str, machine: Machine[Broker]) -> None:
        if action == "kill":
            machine.kill()
            self.loopback.end_isolation(machine.name)  # its next start is on a new host
        elif action == "pause":
            machine.pause()
        elif action == "resume":
            machine.resume()
        elif action == "cut":
            self.loopback.isolate(machine.name)
        else:
            self.loopback.end_isolation(machine.name)

    async def _start(self, broker_id: int, machine: Machine[Broker]) -> None:
        if machine.starting:
            raise Problem(
                409, "REQUEST_IN_PROGRESS", f"broker {broker_id} is starting", what_to_do="Wait until it serves."
            )
        if machine.running:
            return
        try:
            await machine.start()
        except KilledWhileStarting:
            raise Problem(409, "BROKER_NOT_AVAILABLE", f"broker {broker_id} was killed while it started") from None
        except CancelledError:
            raise Problem(503, "BROKER_NOT_AVAILABLE", "the process is stopping") from None
        except (KreplicaError, OSError) as error:
            await machine.stop()
            text = f"broker {broker_id} cannot start: {reason_of(error, with_path=True)}"
            raise Problem(503, "BROKER_NOT_AVAILABLE", text, what_to_do="See its log.") from None
