"""A schedule: kinds, order and targets of faults, all derived from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from faults import KINDS, FaultKind

STEPS_MIN = 3
STEPS_MAX = 5
DURATION_S_MAX = 6.0


@dataclass(frozen=True, slots=True)
class Step:
    """One fault and its duration.

    :param second: a second fault that starts during the first, or None.
    """

    kind: FaultKind
    duration_s: float
    second: FaultKind | None = None

    def __str__(self) -> str:
        names = self.kind.name if self.second is None else f"{self.kind.name} + {self.second.name}"
        return f"{names} for {self.duration_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of one run.

    :param seed: also seeds the random choices of each fault.
    """

    seed: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}: " + "; ".join(map(str, self.steps))


def plan(seed: int) -> Schedule:
    """Return the schedule of a seed; the first kind rotates, so that ``len(KINDS)`` seeds in a row cover all."""
    random = Random(seed)
    kinds = [KINDS[seed % len(KINDS)]]
    kinds += random.choices(KINDS, k=random.randint(STEPS_MIN, STEPS_MAX) - 1)
    random.shuffle(kinds)
    return Schedule(seed, tuple(_step(kind, random) for kind in kinds))


def _step(kind: FaultKind, random: Random) -> Step:
    gentle = [other for other in KINDS if other.combines]
    second = random.choice(gentle) if kind.combines and random.random() < 0.3 else None
    return Step(kind, random.uniform(0.5, DURATION_S_MAX), second if second is not kind else None)
