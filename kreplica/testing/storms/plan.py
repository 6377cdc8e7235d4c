"""Plan of a storm's faults and their times, drawn from the seed before the run, so that faults can be removed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kreplica.testing.storms.options import StormOptions

DURATIONS_S = (0.05, 0.5, 2.0, 6.0, 14.0)
"""Mean durations: some faults end before any broker notices, and some outlast a session and the lag limit."""

STEPS_MAX = 200
KEPT_MIN = 0.3


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault.

    :param number: position in the complete plan, from 1; kept if other faults are removed. The fault's random choices
        depend only on the seed and this number.
    :param name: key in ``faults.FAULTS``.
    :param at_s: start in seconds after the start of the storm.
    :param duration_s: time until the fault ends, if it has an end.
    :param steps: number of events between ``at_s`` and the fault, so that it can interrupt any operation.
    """

    number: int
    name: str
    at_s: float
    duration_s: float
    steps: int

    def __str__(self) -> str:
        return f"{self.number:3}  at {self.at_s:7.3f} s  for {self.duration_s:6.3f} s  {self.name}"


def make_plan(
    seed: int, options: StormOptions, weights: Mapping[str, float], *, label: str = "plan", first_number: int = 1
) -> list[Fault]:
    """Return the faults of one storm in order of time.

    Each seed omits some types of faults, because some bugs appear only without other disturbances (swarm testing).

    :param weights: relative frequencies of the fault types, by name.
    :param label: part of the random seed that distinguishes several plans of one seed.
    """
    random = Random(f"{seed}/{label}")
    kept_share = random.uniform(KEPT_MIN, 1.0)
    names = [name for name in weights if random.random() < kept_share] or list(weights)
    ends_s: list[float] = []
    plan: list[Fault] = []
    at_s = random.expovariate(1 / options.fault_interval_s)
    while at_s < options.seconds:
        ends_s = [end_s for end_s in ends_s if end_s > at_s]
        name = random.choices(names, [weights[name] for name in names])[0]
        duration_s = min(random.expovariate(1 / random.choice(DURATIONS_S)), options.seconds - at_s)
        steps = random.randrange(STEPS_MAX)
        if len(ends_s) < options.overlap:
            ends_s.append(at_s + duration_s)
            plan.append(Fault(len(plan) + first_number, name, at_s, duration_s, steps))
        at_s += random.expovariate(1 / options.fault_interval_s)
    return plan


def select_faults(plan: Sequence[Fault], numbers: Collection[int]) -> list[Fault]:
    return [fault for fault in plan if fault.number in numbers]
