"""The brokers of one process, each on a host of its own: started together, stopped in order, ended alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from kreplica.admin.http.problems import Problem
from kreplica.admin.resources.standalone import CUT, DEAD, PAUSED, RUNNING, BrokerState
from kreplica.errors import KreplicaError
from kreplica.runtime import Runtime
from kreplica.runtime.hosts.host_reactor import HostReactor
from kreplica.runtime.hosts.loopback import Loopback
from kreplica.runtime.hosts.machine import Equipment, KilledWhileStarting, Machine, real_equipment
from kreplica.runtime.pause import pause
from kreplica.runtime.together import together
from kreplica.service.composition.broker import Broker
from kreplica.service.composition.stopping import stop_all

log = Logger()


class HostedBrokers:
    """:param runtime: the process's own.

    :param build: makes a broker of a number, from its host's runtime.
    :ivar machines: by the brokers' ids; they and the loopback may be looked at, and changed only here.
    """

    def __init__(self, runtime: Runtime, numbers: Iterable[int], build: Callable[[int, Runtime], Broker]) -> None:
        self._runtime = runtime
        self._stopping = False
        self._on_change: list[Callable[[int], None]] = []
        self.loopback = Loopback()
        self.machines = {number: self._machine(number, build) for number in numbers}

    def _machine(self, number: int, build: Callable[[int, Runtime], Broker]) -> Machine[Broker]:
        reactor, boot_id = self._runtime.reactor, self._runtime.boot_id

        def equip(host: HostReactor) -> Equipment:
            return real_equipment(host, reactor, boot_id)

        return Machine(reactor, f"broker-{number}", self.loopback, lambda runtime: build(number, runtime), equip)

    def on_change(self, callback: Callable[[int], None]) -> None:
        """Call back with a broker's id whenever it was killed, paused or cut off."""
        self._on_change.append(callback)

    def running(self) -> Mapping[int, Broker]:
        """Those that serve, those first that are not cut off; without what is paused."""
        serving = {
            number: machine
            for number, machine in self.machines.items()
            if machine.running and not machine.starting and not machine.paused
        }
        order = sorted(serving, key=lambda number: (self.loopback.is_isolated(serving[number].name), number))
        return {number: serving[number].program for number in order}

    def is_cut(self, broker_id: int) -> bool:
        """Whether a broker is cut off from everybody."""
        return self.loopback.is_isolated(self.machines[broker_id].name)

    # --- all of them -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all; returns when they serve.

        :raise KreplicaError: with what is wrong; whoever started them stops them then.
        """
        # The first becomes the controller while nobody competes; the others then find one.
        first, *others = self.machines.values()
        await first.start()
        await together(machine.start() for machine in others)

    async def stop(self) -> None:
        """Stop all in order: those that stand still or are cut off, too, once they can hear of it again."""
        self._stopping = True
        self.loopback.heal()
        for machine in self.machines.values():
            machine.resume()
        await stop_all(*(machine.stop for machine in reversed(self.machines.values())))

    # --- one of them -------------------------------------------------------------------------------------------------

    def states(self) -> Mapping[int, BrokerState]:
        return {number: self._state(machine) for number, machine in self.machines.items()}

    def _state(self, machine: Machine[Broker]) -> BrokerState:
        if not machine.running or machine.starting:
            return BrokerState(DEAD, machine.starting)
        if machine.paused:
            return BrokerState(PAUSED)
        return BrokerState(CUT if self.loopback.is_isolated(machine.name) else RUNNING)

    async def do(self, action: str, broker_id: int) -> None:
        # Not in the middle of what the broker itself does: it may be the one that was asked.
        await pause(self._runtime.reactor, 0)
        if self._stopping:
            raise Problem(503, "BROKER_NOT_AVAILABLE", "the process is stopping")
        log.info("{action} broker {broker}, as was asked", action=action, broker=broker_id)
        machine = self.machines[broker_id]
        if action == "start":
            await self._start(broker_id, machine)
        else:
            self._change(action, machine)
            for callback in list(self._on_change):
                callback(broker_id)
            await machine.when_gone()

    def _change(self, action: str, machine: Machine[Broker]) -> None:
        if action == "kill":
            machine.kill()
            self.loopback.mend(machine.name)  # the host that it starts on again is a new one
        elif action == "pause":
            machine.pause()
        elif action == "resume":
            machine.resume()
        elif action == "cut":
            self.loopback.isolate(machine.name)
        else:
            self.loopback.mend(machine.name)

    async def _start(self, broker_id: int, machine: Machine[Broker]) -> None:
        if machine.starting:
            raise Problem(
                409, "REQUEST_IN_PROGRESS", f"broker {broker_id} starts just now", what_to_do="Wait until it serves."
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
            raise Problem(
                503, "BROKER_NOT_AVAILABLE", f"broker {broker_id} cannot start: {error}", what_to_do="See its log."
            ) from None
