"""Work that blocks, on virtual time."""

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
    """An ``Offload`` whose functions run whole, each at a random later moment, so that two may pass one another.

    Its answer arrives later still: a process may be killed when the work is done but nobody knows.

    :param delay_s: the least and the greatest time until a function runs, and again until its answer arrives.
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
                self._answer(deferred.errback, error)
            else:
                self._answer(deferred.callback, result)

        self._waiting[work] = None
        self._scheduler.post(self._process, self._random.uniform(*self.delay_s), work)
        return deferred

    def _answer(self, fire: Callable[..., None], value: object) -> None:
        self._scheduler.post(self._process, self._random.uniform(*self.delay_s), fire, value)

    def stop(self) -> None:
        self._stopped = True
        for work in list(self._waiting):
            work()
