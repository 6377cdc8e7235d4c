"""Steps of a storm from a seed, their minimization, and a transcript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kreplica.testing.designs.storms.checks import Violation
from kreplica.testing.designs.storms.rules import Rules, StormDesign
from kreplica.testing.designs.storms.steps import WEIGHTS, Step, StormState

STEPS_MAX = 80


@dataclass(frozen=True, slots=True)
class Storm:
    """The steps of one storm.

    :param replica_count: replication factor: 2 or 3.
    """

    design: StormDesign
    replica_count: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a storm under some rules.

    :param lines: the effect of each step whose condition held; the last step may have violated a guarantee instead.
    """

    lines: tuple[str, ...]
    violation: Violation | None

    @property
    def kind(self) -> str | None:
        return None if self.violation is None else self.violation.kind


def draw_storm(design: StormDesign, seed: int, rules: Rules) -> Storm:
    """Draw steps until a violation or ``STEPS_MAX``; the same arguments give the same storm."""
    random = Random(f"{design.name}/{seed}")
    replica_count = random.choice((2, 3))
    state = StormState(replica_count, design, rules)
    steps: list[Step] = []
    while len(steps) < STEPS_MAX:
        enabled = state.enabled()
        (step,) = random.choices(enabled, [WEIGHTS[step.name] for step in enabled])
        steps.append(step)
        try:
            state.run(step)
        except Violation:
            break
    return Storm(design, replica_count, tuple(steps))


def replay(storm: Storm, rules: Rules) -> Replay:
    """Run a storm; steps whose condition does not hold are skipped."""
    state = StormState(storm.replica_count, storm.design, rules)
    lines: list[str] = []
    for step in storm.steps:
        try:
            text = state.run(step)
        except Violation as violation:
            return Replay((*lines, f"{step}: {violation}"), violation)
        if text is not None:
            lines.append(f"{step}: {text}")
    return Replay(tuple(lines), None)


def minimize(storm: Storm, rules: Rules) -> Storm:
    """Remove steps, in ever smaller groups, as long as a violation of the same kind remains."""
    kind = replay(storm, rules).kind
    assert kind is not None, "a storm without a violation cannot be minimized"
    steps = list(storm.steps)
    size = max(len(steps) // 2, 1)
    while size:
        removed = False
        for start in range(len(steps) - size, -1, -1):
            shorter = steps[:start] + steps[start + size :]
            if len(shorter) < len(steps) and _kind(storm, shorter, rules) == kind:
                steps, removed = shorter, True
        if not removed or size > len(steps):
            size //= 2
    return Storm(storm.design, storm.replica_count, tuple(steps))


def _kind(storm: Storm, steps: Sequence[Step], rules: Rules) -> str | None:
    return replay(Storm(storm.design, storm.replica_count, tuple(steps)), rules).kind
