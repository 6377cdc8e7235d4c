"""``kreplica pipeline compare``: compare an archive with topics; ``spark-submit`` can run the module."""

from __future__ import annotations

import click

from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    kafka_options,
    pairs,
    print_json,
    progress_shown,
    spark_choice,
    spark_for,
    spark_options,
)
from kreplica.cli.records.data_access import bootstrap_option, reported_on_failure
from kreplica.cli.terminal.screen import Screen, bad, counted, seconds_text
from kreplica.spark.pipelines.compare.compare import SHOWN_MAX, CompareOptions, CompareReport, compare
from kreplica.spark.pipelines.compare.findings import Kind

FILES_SHOWN_MAX = 10


@click.command
@click.argument("path")
@bootstrap_option()
@click.option("--topics", metavar="NAME,...", help="Topics of the archive.  [default: all]")
@click.option("--as", "renamed", multiple=True, metavar="TOPIC=OTHER",
              help="Compare a topic of the archive with the topic it was replayed to; may be repeated.")  # fmt: skip
@click.option("--show", "shown_max", type=click.IntRange(min=0), default=SHOWN_MAX, show_default=True,
              help="Number of differences to list; all are counted.")  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A source option, for example kafka.fetch.max.bytes=...; may be repeated.")  # fmt: skip
@spark_options
def command(
    path: str,
    bootstrap: str,
    topics: str | None,
    renamed: tuple[str, ...],
    shown_max: int,
    options: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare an archive with its topics: by offset, or with --as by content and order.

    Exit status 1 if records are missing, duplicate, different, out of order or additional.  Records that retention
    deleted from a topic, and records that are newer than the archive, are not differences and are counted separately.

    \b
    kreplica pipeline compare /data/archive
    kreplica pipeline compare --as orders=orders-again /data/archive
    """
    wanted = CompareOptions(
        bootstrap=bootstrap,
        topics=comma_separated(topics),
        others=pairs(renamed, "--as"),
        shown_max=shown_max,
        kafka=kafka_options(options),
    )
    choice = spark_choice(master, conf)
    with (
        reported_on_failure(lambda: "the comparison is not complete"),
        spark_for("kreplica pipeline compare", choice) as spark,
        progress_shown() as report,
    ):
        done = compare(spark, path, wanted, report)
    if as_json:
        print_json(done)
    else:
        _show(Screen(), done)
    if not done.is_equal:
        raise SystemExit(1)


def _show(screen: Screen, done: CompareReport) -> None:
    rows = [
        (each.topic, each.other, each.partition, each.records, each.deleted, *(bad(each.counts[kind],
         when=each.counts[kind] > 0) for kind in Kind))
        for each in done.partitions
    ]  # fmt: skip
    columns = ("topic", "compared with", "partition", "records", "deleted", *(kind.value for kind in Kind))
    screen.table(columns, rows, nothing="The archive has no records.")
    if done.differences:
        screen.line()
        named = [
            (each.kind.value, each.topic, each.partition, each.archive_offset, each.topic_offset)
            for each in done.differences
        ]
        screen.table(("difference", "topic", "partition", "offset in archive", "in topic"), named, nothing="")
    for file in done.lost_files[:FILES_SHOWN_MAX]:
        screen.line(f"{done.path}/{file} is missing")
    lost = f", {counted(len(done.lost_files), 'file')} missing" if done.lost_files else ""
    screen.line(
        f"{done.path}: {counted(done.records, 'record')} compared, {counted(done.difference_count, 'difference')}{lost}"
        f"; {done.deleted:,} deleted from topics, lag {done.lag:,}; {seconds_text(done.seconds)}"
    )


if __name__ == "__main__":
    command()
