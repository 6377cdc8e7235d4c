"""Simulated thread pool on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ParamSpec, TypeVar

from twisted.internet.defer import Deferred, fail

from kreplica.testing.simulator.scheduler import Process, Scheduler

P = ParamSpec("P")
T = TypeVar("T")

DELAY_S = (0.000_02, 0.002)


class SimulatedOffload:
    """An ``Offload`` that runs each function as one event after a random delay, so functions can overtake each other.

    The result arrives after another delay: a process may be killed after the work is done and before its result.

    :param delay_s: range of each of the two delays.
    """

    def __init__(
        self, scheduler: Scheduler, process: Process, random: Random, delay_s: tuple[float, float] = DELAY_S
    ) -> None:
        self.delay_s = delay_s
        self._scheduler = scheduler
        self._process = process
        self._random = random
        self._waiting: dict[Callable[[], None], None] = {}
        self._stopped = False

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        if self._stopped:
            return fail(RuntimeError("the offload is stopped"))
        deferred: Deferred[T] = Deferred()

        def work() -> None:
            if work not in self._waiting:
                return
            del self._waiting[work]
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                self._deliver(deferred.errback, error)
            else:
                self._deliver(deferred.callback, result)

        self._waiting[work] = None
        self._scheduler.post(self._process, self._random.uniform(*self.delay_s), work)
        return deferred

    def _deliver(self, fire: Callable[..., None], value: object) -> None:
        self._scheduler.post(self._process, self._random.uniform(*self.delay_s), fire, value)

    def stop(self) -> None:
        self._stopped = True
        for work in list(self._waiting):
            work()
