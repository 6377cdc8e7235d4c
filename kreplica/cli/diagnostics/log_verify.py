"""``kreplica log verify``: check logs on disk for damage."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from kreplica.cli.http.session import CommandFailed
from kreplica.cli.terminal.screen import bytes_text, count_text, escape_controls
from kreplica.runtime.os_disk import ReadOnlyDisk
from kreplica.storage.inspection.segment_checks import CheckOptions, Problem
from kreplica.storage.inspection.verification import NoLogsFound, Tally, Verification

PAUSE_S = 0.2


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--records", is_flag=True, help="Also decompress every batch and parse its records.")
@click.option("--report-gaps", is_flag=True,
              help="Also report gaps between offsets; use it only for logs that were never compacted.")  # fmt: skip
@click.option("--no-gaps", is_flag=True, hidden=True)  # former name of --report-gaps
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per problem, and one for the totals.")
def command(directory: str, records: bool, report_gaps: bool, no_gaps: bool, as_json: bool) -> None:
    """Check logs on disk: checksums, order of offsets, indexes, sizes, leader epochs, transactions.

    DIRECTORY is a log directory (log.dirs) or the directory of one partition, of kreplica or Apache Kafka.  Files are
    not changed.  The broker may be running: each problem is checked again before it is reported.  The exit status is 1
    if there are problems.
    """
    options = CheckOptions(records=records, gaps=report_gaps or no_gaps)
    verification = Verification(ReadOnlyDisk(), options, lambda: time.sleep(PAUSE_S))
    try:
        for problem in verification.run(directory):
            click.echo(_problem_line(problem, as_json=as_json))
    except NoLogsFound as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename or directory} cannot be read: {error.strerror}") from None
    tally = verification.tally
    click.echo(json.dumps(asdict(tally)) if as_json else _summary(tally))
    raise SystemExit(1 if tally.problems else 0)


def _problem_line(problem: Problem, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"file": problem.path, "position": problem.position, "problem": problem.text})
    return escape_controls(str(problem))


def _summary(tally: Tally) -> str:
    counts = (
        f"{count_text(tally.partitions, 'partition')}, {count_text(tally.segments, 'segment')}, "
        f"{count_text(tally.batches, 'batch', 'batches')}, {bytes_text(tally.bytes)}"
    )
    return f"{counts}: {count_text(tally.problems, 'problem') if tally.problems else 'no problems'}"
