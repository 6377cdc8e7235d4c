"""``kreplica designs replay``: print the steps in which a design loses an acknowledged record."""

from __future__ import annotations

import sys

import click

from kreplica.testing.designs.storms.published import PUBLISHED
from kreplica.testing.designs.storms.rules import RULE_NAMES, STORM_DESIGNS, Rules
from kreplica.testing.designs.storms.storm import draw_storm, minimize, replay

VIOLATED = 1

_RULES = [name.replace("_", "-") for name in RULE_NAMES]


@click.command()
@click.argument("design", required=False, type=click.Choice(list(STORM_DESIGNS)))
@click.argument("seed", required=False, type=click.IntRange(min=0))
@click.option("--repair", "repairs", multiple=True, type=click.Choice(_RULES), metavar="RULE",
              help="Replay the steps with the repaired version of this rule; may be repeated.  "
              f"Rules: {', '.join(_RULES)}.")  # fmt: skip
def command(design: str | None, seed: int | None, repairs: tuple[str, ...]) -> None:
    """Print the steps by which a storm violates a guarantee of the design `race` or `leader`.

    A storm is a random sequence of steps, chosen by the seed.  The command removes the steps that are not necessary for
    the violation.  With --repair, it shows whether repaired rules prevent the violation; steps that they rule out are
    omitted.  The exit status is 1 if a guarantee is violated.  Without arguments, the command lists the published
    storms.
    """
    if design is None or seed is None:
        for each in PUBLISHED:
            rules_text = ", ".join(name.replace("_", "-") for name in each.repairs)
            click.echo(f"{each.design} {each.seed}: {each.kind}, {each.steps} steps, repaired by {rules_text}")
        return
    storm = draw_storm(STORM_DESIGNS[design], seed, Rules())
    if replay(storm, Rules()).violation is None:
        click.echo(f"Storm {seed} of {design}: no guarantee is violated in {len(storm.steps)} steps.")
        return
    rules = Rules().repaired(*(name.replace("-", "_") for name in repairs))
    result = replay(minimize(storm, Rules()), rules)
    click.echo(f"{storm.replica_count} replicas; broker 1 leads, and all are in sync.")
    for number, line in enumerate(result.lines, 1):
        click.echo(f"{number:3}  {line.partition(': ')[2]}")
    if result.violation is not None:
        sys.exit(VIOLATED)
    click.echo("No guarantee is violated.")
