"""``kreplica simulate``: run simulated storms, each reproducible from its seed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import IO, NoReturn

import click

from kreplica.cli.diagnostics.simulate_report import Progress, describe, describe_failure, describe_tally
from kreplica.testing.storms.minimize import minimize
from kreplica.testing.storms.options import BadOption, StormOptions, options_of
from kreplica.testing.storms.outcome import Outcome, run_storm
from kreplica.testing.storms.sweep import Tally, disable_logging, sweep

FAILED = 1


def _parse_seeds(_: click.Context, __: click.Parameter, text: str | None) -> Iterable[int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d*))?", text)
    if match is None:
        raise click.BadParameter(f"{text!r}: expected 7, 1-200 or 1- (with --minutes)")
    first = int(match[1])
    if match[2] == "":
        return count(first)
    last = int(match[2] or first)
    if last < first:
        raise click.BadParameter(f"{text!r}: {last} is smaller than {first}")
    return range(first, last + 1)


def _parse_fault_numbers(_: click.Context, __: click.Parameter, text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",") if number]
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected fault numbers such as 3,7,12") from None


def _parse_options(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r}: expected NAME=VALUE")
    overrides = dict(text.split("=", 1) for text in texts)
    try:
        options_of(0, overrides)
    except BadOption as error:
        raise click.BadParameter(str(error)) from None
    return overrides


@click.command(context_settings={"show_default": True})
@click.option("--seed", type=click.IntRange(min=0), help="Run one storm and describe it.")
@click.option("--seeds", callback=_parse_seeds, metavar="A-B", help="Run one storm per seed; A- has no upper limit.")
@click.option("--minutes", type=click.FloatRange(min=0),
              help="With --seeds: stop starting storms after this many minutes.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), default=1, help="Concurrent storms, one process each.")
@click.option("--option", "overrides", multiple=True, callback=_parse_options, metavar="NAME=VALUE",
              help="Set an option instead of drawing it from the seed: "
              f"{', '.join(StormOptions.__dataclass_fields__)}.")  # fmt: skip
@click.option("--faults", "fault_numbers", callback=_parse_fault_numbers, metavar="N,N,...",
              help="With --seed: run only these faults.")  # fmt: skip
@click.option(
    "--minimize", "should_minimize", is_flag=True, help="With --seed: remove faults as long as the storm still fails."
)
@click.option("--trace", type=click.File("w"), help="With --seed: write one line per event; - is standard output.")
def command(
    seed: int | None,
    seeds: Iterable[int] | None,
    minutes: float | None,
    jobs: int,
    overrides: dict[str, str],
    fault_numbers: list[int] | None,
    should_minimize: bool,
    trace: IO[str] | None,
) -> None:
    """Simulate clusters with faults in virtual time.

    A storm is one simulated run of a cluster under load.  It runs the broker's code.  Its seed determines the faults of
    processes, machines, network, disks and clocks.  Invariants (no committed record is lost or differs between
    replicas) are checked after each event, and recovery is checked at the end.  The same seed reproduces the same run.

    \b
    kreplica simulate --seed 7
    kreplica simulate --seeds 1-1000 --jobs 2
    kreplica simulate --seed 7 --minimize
    kreplica simulate --seed 7 --faults 3,12 --trace seven.trace
    """
    if (seed is None) == (seeds is None):
        raise click.UsageError("specify either --seed or --seeds")
    if seed is None and (fault_numbers is not None or should_minimize or trace is not None):
        raise click.UsageError("--faults, --minimize and --trace require --seed")
    if isinstance(seeds, count) and minutes is None:
        raise click.UsageError("--seeds without a last seed requires --minutes")
    disable_logging()
    if seeds is not None:
        _run_many(seeds, minutes, jobs, overrides)
    else:
        assert seed is not None
        _run_one(seed, overrides, fault_numbers, should_minimize, trace)


def _run_one(
    seed: int,
    overrides: dict[str, str],
    fault_numbers: list[int] | None,
    should_minimize: bool,
    trace: IO[str] | None,
) -> NoReturn:
    write = None if trace is None else lambda line: print(line, file=trace)
    outcome = run_storm(seed, options_of(seed, overrides), fault_numbers, write)
    if should_minimize and not outcome.clean:
        click.echo(f"seed {seed} fails with {len(outcome.plan)} faults: {outcome.failure}")
        minimum = minimize(outcome, lambda tried: click.echo(_attempt(tried)))
        click.echo(f"after {minimum.runs} storms:\n")
        outcome = minimum.outcome
    click.echo(describe(outcome, overrides), err=trace is sys.stdout)
    sys.exit(0 if outcome.clean else FAILED)


def _attempt(outcome: Outcome) -> str:
    numbers = ",".join(str(fault.number) for fault in outcome.plan) or "none"
    return f"  {'passes' if outcome.clean else 'fails '} with faults {numbers}"


def _run_many(seeds: Iterable[int], minutes: float | None, jobs: int, overrides: dict[str, str]) -> NoReturn:
    tally, started_s = Tally(), monotonic()
    seconds_max = float("inf") if minutes is None else minutes * 60
    with _stop_on_interrupt(), Progress(seeds, seconds_max) as progress:
        for outcome in sweep(seeds, jobs=jobs, chosen=overrides, seconds_max=seconds_max):
            tally.add(outcome)
            if not outcome.clean:
                progress.print(describe_failure(outcome, overrides))
            progress.update(tally)
    click.echo(describe_tally(tally, monotonic() - started_s, jobs, overrides))
    sys.exit(FAILED if tally.failures or not tally.storms else 0)


@contextmanager
def _stop_on_interrupt() -> Iterator[None]:
    """On Ctrl-C, end the sweep and continue with the summary."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
