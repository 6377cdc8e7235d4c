"""``kreplica simulate --mutations``: each rule of replication is taken away, and it is counted what misses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table

from kreplica.testing.storms.guards import GUARDS
from kreplica.testing.storms.mutations import Score, score

COLUMNS = ("guard", "scenario", "storms", "caught by", "timed out", "first seed", "what broke")
WIDTH_WITHOUT_TERMINAL = 200


def run_mutations(seeds: Sequence[int], *, jobs: int, chosen: Mapping[str, str]) -> bool:
    """Print a line for each guard as it is ready, and all of them in a table at the end.

    :return: whether each was caught.
    """
    console = Console(width=None if Console().is_terminal else WIDTH_WITHOUT_TERMINAL)
    scores: list[Score] = []
    for each in score(seeds, jobs=jobs, chosen=chosen):
        scores.append(each)
        click.echo(f"{len(scores)} of {len(GUARDS)}: {_line(each)}", err=True)
    console.print(table(scores))
    missed = [each.guard for each in scores if not each.is_caught]
    if missed:
        click.echo(f"NOT CAUGHT: {', '.join(missed)}")
    else:
        click.echo(f"all {len(scores)} are caught")
    return not missed


def _line(one: Score) -> str:
    scenario = f"caught by {one.scenario}" if one.scenario_caught else f"not caught by {one.scenario}"
    storms = f", and by {len(one.caught)} of {one.storms} storms" if one.storms else ""
    return f"{one.guard}: {scenario}{storms}" + (f"; {len(one.stuck)} timed out" if one.stuck else "")


def table(scores: Iterable[Score]) -> Table:
    """The scores in the order of the guards."""
    made = Table(*COLUMNS)
    for one in sorted(scores, key=lambda each: each.number):
        made.add_row(
            one.guard,
            one.scenario if one.scenario_caught else f"({one.scenario})",
            str(one.storms),
            str(len(one.caught)),
            str(len(one.stuck)),
            str(one.caught[0]) if one.caught else "-",
            one.what_broke[:60] or "nothing",
        )
    return made
