"""Rolling restarts, as for an upgrade."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from twisted.internet.defer import CancelledError, Deferred

from kreplica.runtime.pause import pause
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import ReplicatedRun

HARD_CHANCE = 0.5
CHECK_INTERVAL_S = 0.2
STOP_S_MAX = 10.0
START_S_MAX = 20.0


def restart_all(run: ReplicatedRun, random: Random) -> End:
    """Restart all brokers, by kill or shutdown; the next follows when the previous one serves, or after a timeout."""
    restart = _RollingRestart(run, hard=random.random() < HARD_CHANCE)
    order = random.sample(sorted(run.cluster.brokers), len(run.cluster.brokers))
    run.note(f"brokers {order} are restarted one after another")
    rolling = Deferred.fromCoroutine(restart.run(order))
    rolling.addErrback(lambda failure: failure.trap(CancelledError))

    def end() -> None:
        rolling.cancel()
        restart.start_stopped()

    return end


class _RollingRestart:
    """Restarts brokers one after another.

    :param hard: kill the brokers instead of stopping them gracefully.
    """

    def __init__(self, run: ReplicatedRun, *, hard: bool) -> None:
        self._run = run
        self._hard = hard
        self._stopped: int | None = None
        self._reactor = run.cluster.simulation.host("operator").reactor

    async def run(self, order: list[int]) -> None:
        for broker in order:
            if self._run.machine(broker).running:
                self._stopped = broker
                if not self._hard:
                    await self._stop(broker)
                self.start_stopped()
                await self._wait(partial(self._run.serves, broker), START_S_MAX)

    async def _stop(self, broker: int) -> None:
        machine = self._run.machine(broker)
        program = machine.program
        self._run.shut_down(broker).addErrback(self._run.record_failure)
        await self._wait(lambda: not machine.running or machine.program is not program, STOP_S_MAX)

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        ends_s = self._reactor.seconds() + timeout_s
        while not condition() and self._reactor.seconds() < ends_s:
            await pause(self._reactor, CHECK_INTERVAL_S)

    def start_stopped(self) -> None:
        """Start the stopped broker again; kill it if it is still running."""
        broker, self._stopped = self._stopped, None
        if broker is None:
            return
        if self._run.machine(broker).running:
            self._run.kill(broker)
        self._run.launch(broker)
