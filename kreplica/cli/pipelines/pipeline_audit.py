"""``kreplica pipeline audit``: compare the replicas of a cluster, and list the differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kreplica.cli.http.session import CommandFailed
from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    open_spark,
    parse_spark_options,
    print_json,
    show_progress,
    spark_options,
)
from kreplica.cli.profiles.choice import profile_option
from kreplica.cli.records.data_access import (
    brokers_option,
    client_config,
    client_config_option,
    given_or_profile_bootstrap,
    report_failures,
)
from kreplica.cli.terminal.screen import Screen, bytes_text, count_text, problem_text, seconds_text
from kreplica.errors import reason_of

if TYPE_CHECKING:
    from kreplica.spark.pipelines.audit.report import AuditReport

ROWS_SHOWN = 50
NOTES_SHOWN = 20


def _parse_directories(
    _: click.Context, __: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[int, tuple[str, ...]]]:
    """Parse ``/a,/b`` and ``1=/a,/b``: directories of any broker, and directories by broker."""
    shared_dirs: list[str] = []
    dirs_by_broker: dict[int, tuple[str, ...]] = {}
    for text in texts:
        broker, sign, paths = text.partition("=")
        is_of_broker = bool(sign) and broker.strip().isdecimal()
        directories = [each.strip().rstrip("/") or "/" for each in (paths if is_of_broker else text).split(",")]
        if "/" in directories or not all(directories):
            raise click.BadParameter(f"{text!r}: expected DIRECTORY,... or BROKER=DIRECTORY,...")
        if is_of_broker:
            dirs_by_broker[int(broker)] = (*dirs_by_broker.get(int(broker), ()), *directories)
        else:
            shared_dirs += directories
    return tuple(shared_dirs), dirs_by_broker


@click.command
@click.argument("topics", nargs=-1)
@click.option("--log-dirs", multiple=True, metavar="[BROKER=]DIR,...", callback=_parse_directories,
              help="Log directories of all brokers; BROKER= is required if meta.properties has no ID.")  # fmt: skip
@brokers_option(purpose="Bootstrap brokers, for the assignments and high watermarks.", envvar="KREPLICA_BOOTSTRAP",
                show_envvar=True)  # fmt: skip
@click.option("--via-brokers", is_flag=True, help="Read replicas from their brokers instead of from files.")
@click.option("--compacted", metavar="TOPIC,...", default="",
              help="Compacted topics, in addition to those that the brokers report.")  # fmt: skip
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write an HTML report to this file.")
@click.option("--resume", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Record progress in this file, so that an interrupted audit can be resumed.")  # fmt: skip
@client_config_option()
@profile_option
@spark_options
def command(
    topics: tuple[str, ...],
    log_dirs: tuple[tuple[str, ...], dict[int, tuple[str, ...]]],
    bootstrap: str | None,
    via_brokers: bool,
    compacted: str,
    html: Path | None,
    resume: Path | None,
    as_json: bool,
    conf: tuple[str, ...],
    master: str | None,
) -> None:
    """Verify that all replicas are identical below the high watermark: checksums, offsets, leader epochs.

    The command reads TOPICS; by default, all topics, including internal ones.  The brokers may be running.  Exit
    status: 0 if all replicas are identical, 1 if there are differences or some data could not be compared.

    \b
    kreplica pipeline audit --log-dirs /data/1/a,/data/1/b --log-dirs /data/2
    kreplica pipeline audit --log-dirs 1=/srv/1 --log-dirs 2=/srv/2 --bootstrap kafka-1:9092 --html audit.html
    kreplica pipeline audit --via-brokers --bootstrap kafka-1:9092 orders payments
    """
    shared_dirs, dirs_by_broker = log_dirs
    bootstrap = _source_brokers(via_brokers, bootstrap, has_log_dirs=bool(shared_dirs or dirs_by_broker))
    state = f"progress is stored in {resume}" if resume is not None else "no progress is stored (see --resume)"
    with (
        report_failures(lambda: state),
        open_spark("kreplica pipeline audit", parse_spark_options(master, conf)) as spark,
        show_progress() as progress,
    ):
        from kreplica.spark.connection_security import ConnectionSecurity
        from kreplica.spark.pipelines.audit.audit import AuditOptions, audit

        options = AuditOptions(
            log_dirs=shared_dirs,
            log_dirs_of=dirs_by_broker,
            bootstrap=bootstrap,
            via_brokers=via_brokers,
            topics=frozenset(topics),
            compacted=frozenset(comma_separated(compacted)),
            resume=resume,
            security=ConnectionSecurity.of(client_config()),
        )
        report = audit(spark, options, progress)
    if html is not None:
        _write_page(report, html)
    if as_json:
        print_json(report.as_document())
    else:
        _print_report(report, Screen())
        if html is not None:
            click.echo(f"report: {html}")
    if not report.agrees:
        raise SystemExit(1)


def _source_brokers(via_brokers: bool, bootstrap: str | None, *, has_log_dirs: bool) -> str | None:
    """Check the options that choose the source of the replicas, and return the bootstrap brokers to use."""
    if not via_brokers:
        if not has_log_dirs:
            raise click.UsageError("specify --log-dirs, or --via-brokers to read the replicas from their brokers")
        return bootstrap
    if has_log_dirs:
        raise click.UsageError("--via-brokers and --log-dirs cannot be combined")
    addresses = given_or_profile_bootstrap(bootstrap)
    if addresses is None:
        raise click.UsageError("--via-brokers requires --bootstrap or a profile")
    return addresses


def _write_page(report: AuditReport, path: Path) -> None:
    from kreplica.cli.pipelines.audit_page import audit_page

    try:
        path.write_text(audit_page(report))
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {reason_of(error)}") from error


def _print_report(report: AuditReport, screen: Screen) -> None:
    screen.table(
        ("TOPIC", "PARTITION", "OFFSET", "BROKER", "KIND", "DETAIL"),
        [
            (each.topic, each.partition, each.base_offset, each.broker, problem_text(each.kind.value), each.detail)
            for each in report.differences[:ROWS_SHOWN]
        ],
        empty_text="No differences.",
        prose=("DETAIL",),
    )
    if report.difference_count > ROWS_SHOWN:
        screen.line(f"... and {report.difference_count - ROWS_SHOWN:,} more; --json and --html list them")
    screen.line()
    screen.table(
        ("BROKER", "REPLICAS", "BATCHES", "READ", "BEHIND OTHERS", "DIFFERENCES"),
        [
            (each.broker, each.replicas, each.batches, bytes_text(each.size_bytes), each.short, each.differences)
            for each in report.by_broker()
        ],
        empty_text="No replica was read.",
    )
    for note in report.notes[:NOTES_SHOWN]:
        screen.line(f"note: {note}")
    if len(report.notes) > NOTES_SHOWN:
        screen.line(f"... and {len(report.notes) - NOTES_SHOWN:,} more notes")
    if report.taken_over:
        screen.line(f"{count_text(report.taken_over, 'partition')}: results reused from an earlier run")
    rate = report.read_bytes / max(report.seconds, 1e-3) / 1e9
    took = f"{bytes_text(report.read_bytes)} in {seconds_text(report.seconds)}, {rate:.2f} GB/s"
    screen.line(f"{count_text(report.batches, 'batch', 'batches')}, {took}")
    screen.line(report.verdict, "bold green" if report.agrees else "bold red")


if __name__ == "__main__":
    command()
