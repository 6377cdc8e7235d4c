"""The published violations: the smallest seed of each kind and design, and those with the fewest steps.

``docs/explanation/design-races.md`` has their transcripts; ``kreplica designs replay DESIGN SEED`` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.testing.designs.storms.checks import LOST, TWO_LEADERS


@dataclass(frozen=True, slots=True)
class Published:
    """One violation.

    :param kind: the violated guarantee.
    :param steps: number of steps after minimization.
    :param repairs: rules; each of them prevents the violation if it is applied alone.
    """

    design: str
    seed: int
    kind: str
    steps: int
    repairs: tuple[str, ...]


EPOCH, WAIT, CONDITIONAL = "truncate_by_epoch", "wait_for_in_sync", "conditional_writes"

PUBLISHED = (
    Published("race", 6, LOST, 11, (EPOCH,)),
    Published("race", 738, LOST, 7, (CONDITIONAL,)),
    Published("race", 342, TWO_LEADERS, 7, (CONDITIONAL,)),
    Published("leader", 547, LOST, 13, (EPOCH,)),
    Published("leader", 341, LOST, 7, (CONDITIONAL,)),
    Published("leader", 28, TWO_LEADERS, 7, (CONDITIONAL,)),
)
"""The fewest steps for each design, guarantee and single repair, among the seeds 1 to 1,000."""

SMALLEST_SEEDS = {
    ("race", LOST): 6,
    ("race", TWO_LEADERS): 75,
    ("leader", LOST): 22,
    ("leader", TWO_LEADERS): 28,
}
