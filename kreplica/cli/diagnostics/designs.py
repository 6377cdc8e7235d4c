"""``kreplica designs``: compare three designs of cluster coordination in virtual time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand
from kreplica.testing.designs.design_claims import design_claims
from kreplica.testing.designs.measure import CaseResult
from kreplica.testing.designs.pictures import write_pictures
from kreplica.testing.designs.suite import SUBSET_RULE, choose_cases, run_cases
from kreplica.testing.designs.tables import claims_text, results_text

QUICK_PARTITIONS, QUICK_BROKERS, QUICK_RTTS_MS = (10, 100), (3,), (1.0,)


def _parse_counts(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected numbers such as 10,1000") from None
    if min(counts) < 1:
        raise click.BadParameter(f"{text!r}: every number must be at least 1")
    return counts


def _parse_brokers(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    counts = _parse_counts(context, parameter, text)
    if min(counts) < 2:
        raise click.BadParameter(f"{text!r}: a cluster needs at least 2 brokers, because one of them is killed")
    return counts


def _parse_times(_: click.Context, __: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        times = tuple(map(float, text.split(",")))
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected milliseconds such as 0.5,1,4") from None
    if not all(0 < time_ms < 10_000 for time_ms in times):
        raise click.BadParameter(f"{text!r}: a round trip must take more than 0 and less than 10,000 ms")
    return times


SUBCOMMANDS = {
    "answer": Subcommand("diagnostics.designs_answer", "Answer an open design question by measurement."),
    "replay": Subcommand("diagnostics.designs_replay", "Print the steps in which a design violates a guarantee."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS, invoke_without_command=True)
@click.option("--quick", is_flag=True, help="Small clusters only; takes less than a minute.")
@click.option("--partitions", default="10,1000,10000,100000", callback=_parse_counts, metavar="N,N,...",
              show_default=True, help="Partition counts to compare.")  # fmt: skip
@click.option("--brokers", default="3,10,50", callback=_parse_brokers, metavar="N,N,...",
              show_default=True, help="Broker counts to compare.")  # fmt: skip
@click.option("--rtt", "rtts_ms", default="0.5,1,4", callback=_parse_times, metavar="MS,MS,...",
              show_default=True, help="Round-trip times to ZooKeeper and between brokers, in ms.")  # fmt: skip
@click.option("--replication-factor", type=click.IntRange(min=2), default=2, show_default=True,
              help="Replicas of each partition.")  # fmt: skip
@click.option("--full", is_flag=True, help="Run every combination, including large ones; takes hours.")
@click.option("--jobs", type=click.IntRange(1, 256), default=lambda: os.cpu_count() or 1, show_default="CPU cores",
              help="Concurrent clusters, one process each.")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path),
              help="Write all results to this file.")  # fmt: skip
@click.option("--pictures", "pictures_path", type=click.Path(file_okay=False, path_type=Path),
              help="Write SVG charts to this directory that show how time and requests grow with the number of "
                   "partitions.")  # fmt: skip
@click.pass_context
def command(
    context: click.Context,
    quick: bool,
    partitions: tuple[int, ...],
    brokers: tuple[int, ...],
    rtts_ms: tuple[float, ...],
    replication_factor: int,
    full: bool,
    jobs: int,
    json_path: Path | None,
    pictures_path: Path | None,
) -> None:
    """Compare three designs of cluster coordination: race, leader and controller.

    In `race`, replicas race for an ephemeral leader znode per partition; in `leader`, the winner controls the states
    of the other replicas; `controller` is kreplica's own controller.  All run in virtual time, with simulated brokers
    that have no logs.
    """
    if context.invoked_subcommand is not None:
        return
    if quick:
        partitions, brokers, rtts_ms = QUICK_PARTITIONS, QUICK_BROKERS, QUICK_RTTS_MS
    cases = choose_cases(partitions, brokers, rtts_ms, replication_factor, full=full)
    results = run_cases(cases, 1 if quick else jobs, _report)
    claims = design_claims(quick=quick)
    click.echo(results_text(results))
    if not quick and not full:
        click.echo(f"\n{SUBSET_RULE}")
    click.echo(f"\n{claims_text(claims)}")
    rows = [row for result in results for row in result.rows()]
    if json_path is not None:
        _write_json(json_path, {"events": rows, "design_texts": [each.row() for each in claims]})
    if pictures_path is not None:
        for path in write_pictures(rows, pictures_path):
            click.echo(f"wrote {path}", err=True)


def _report(result: CaseResult) -> None:
    case = result.case
    click.echo(
        f"{case.design}: {case.shape.partitions:,} partitions, {case.shape.brokers} brokers, {case.rtt_ms:g} ms: "
        f"{result.cpu_s:.1f} s of CPU time, {result.memory_mb} MB",
        err=True,
    )


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
