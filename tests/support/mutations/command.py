"""Command ``python -m tests.support.mutations``: disables one guard at a time and reports which checks detect it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table

from kreplica.testing.storms.options import BadOption, options_of
from tests.support.mutations.guards import GUARDS
from tests.support.mutations.scoring import Score, score

COLUMNS = ("guard", "scenario", "storms", "caught by", "timed out", "first seed", "what broke")
WIDTH_WITHOUT_TERMINAL = 200


def _seeds(_: click.Context, __: click.Parameter, text: str | None) -> Sequence[int]:
    if text is None:
        return ()
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match is None or int(match[2]) < int(match[1]):
        raise click.BadParameter(f"{text!r}: expected a range such as 1-200")
    return range(int(match[1]), int(match[2]) + 1)


def _options(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    chosen = dict(text.partition("=")[::2] for text in texts)
    try:
        options_of(0, chosen)
    except BadOption as error:
        raise click.BadParameter(str(error)) from None
    return chosen


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=_seeds, metavar="A-B", help="Also run a storm for each of these seeds.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, help="Number of guards tested in parallel.")
@click.option("--option", "chosen", multiple=True, callback=_options, metavar="NAME=VALUE",
              help="Set an option of the storms instead of deriving it from the seed.")  # fmt: skip
def command(seeds: Sequence[int], jobs: int, chosen: Mapping[str, str]) -> None:
    """Test the tests: disable each guard and report which scenarios and storms detect it.

    The exit status is 1 if a disabled guard is not detected.
    """
    sys.exit(0 if run_mutations(seeds, jobs=jobs, chosen=chosen) else 1)


def run_mutations(seeds: Sequence[int], *, jobs: int, chosen: Mapping[str, str]) -> bool:
    """Print a line when a guard has been tested, and a table of all guards at the end.

    :param seeds: seeds of the storms to run without each guard, in addition to the guard's scenario.
    :param jobs: number of guards tested in parallel.
    :param chosen: options of the storms that do not depend on the seed.
    :return: True if the removal of every guard was detected.
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
    """Return a table of the scores in the order of the guards."""
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
