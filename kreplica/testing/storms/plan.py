"""What is to go wrong, and when: made from the seed before anything runs, so that parts of it can be left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kreplica.testing.storms.options import StormOptions

LASTS_S = (0.05, 0.5, 2.0, 6.0, 14.0)
"""Mean durations: some faults are over before anybody notices, some outlast a session and the lag limit."""

STEPS_MAX = 200
KEPT_MIN = 0.3


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    :param number: its place in the whole plan, from 1, which it keeps where others are left out; all that it chooses
        when it happens (whom, how much) it draws from the seed and this number.
    :param name: which, as ``faults.FAULTS`` has it.
    :param at_s: when, in seconds since the storm began.
    :param lasts_s: how long until its end, where it has one.
    :param steps: so many events more happen before it does: any of them may be half of something.
    """

    number: int
    name: str
    at_s: float
    lasts_s: float
    steps: int

    def __str__(self) -> str:
        return f"{self.number:3}  at {self.at_s:7.3f} s  for {self.lasts_s:6.3f} s  {self.name}"


def make_plan(
    seed: int, options: StormOptions, weights: Mapping[str, float], *, of: str = "plan", begin: int = 1
) -> list[Fault]:
    """The faults of one storm, in order.

    Each seed leaves some kinds of faults out altogether: what only happens where nothing else disturbs it gets its
    chance so (swarm testing).

    :param weights: of the kinds of faults, by name.
    :param of: by which plans of one seed are different.
    :param begin: the number of the first fault.
    """
    random = Random(f"{seed}/{of}")
    kept = random.uniform(KEPT_MIN, 1.0)
    names = [name for name in weights if random.random() < kept] or list(weights)
    ends_s: list[float] = []
    plan: list[Fault] = []
    at_s = random.expovariate(1 / options.calm_s)
    while at_s < options.seconds:
        ends_s = [end_s for end_s in ends_s if end_s > at_s]
        name = random.choices(names, [weights[each] for each in names])[0]
        lasts_s = min(random.expovariate(1 / random.choice(LASTS_S)), options.seconds - at_s)
        steps = random.randrange(STEPS_MAX)
        if len(ends_s) < options.overlap:
            ends_s.append(at_s + lasts_s)
            plan.append(Fault(len(plan) + begin, name, at_s, lasts_s, steps))
        at_s += random.expovariate(1 / options.calm_s)
    return plan


def numbered(plan: Sequence[Fault], numbers: Collection[int]) -> list[Fault]:
    """Those of a plan that have these numbers."""
    return [fault for fault in plan if fault.number in numbers]
