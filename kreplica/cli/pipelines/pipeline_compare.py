"""``kreplica pipeline compare``: compare an archive with topics; ``spark-submit`` can run the module."""

from __future__ import annotations

import click

from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    open_spark,
    pairs,
    parse_options,
    parse_spark_options,
    print_json,
    show_progress,
    spark_options,
)
from kreplica.cli.records.data_access import bootstrap_option, client_config_option, report_failures
from kreplica.cli.terminal.screen import Screen, count_text, problem_text, seconds_text
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
              help="Number of differences to list; all of them are counted.")  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A source option, for example kafka.fetch.max.bytes=...; may be repeated.")  # fmt: skip
@client_config_option()
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
    """Compare an archive with its topics: by offset or, with --as, by content and order.

    Exit status: 1 if records are missing, duplicate, different, out of order or extra.  Records that retention deleted
    from a topic, and records that are newer than the archive, are counted separately and are not differences.

    \b
    kreplica pipeline compare /data/archive
    kreplica pipeline compare --as orders=orders-again /data/archive
    """
    pipeline_options = CompareOptions(
        bootstrap=bootstrap,
        topics=comma_separated(topics),
        others=pairs(renamed, "--as"),
        shown_max=shown_max,
        kafka=parse_options(options),
    )
    spark_settings = parse_spark_options(master, conf)
    with (
        report_failures(lambda: "the comparison is not complete"),
        open_spark("kreplica pipeline compare", spark_settings) as spark,
        show_progress() as report,
    ):
        result = compare(spark, path, pipeline_options, report)
    if as_json:
        print_json(result)
    else:
        _print_report(Screen(), result)
    if not result.is_equal:
        raise SystemExit(1)


def _print_report(screen: Screen, result: CompareReport) -> None:
    rows = [
        (each.topic, each.other, each.partition, each.records, each.deleted, *(problem_text(each.counts[kind],
         when=each.counts[kind] > 0) for kind in Kind))
        for each in result.partitions
    ]  # fmt: skip
    columns = ("topic", "compared with", "partition", "records", "deleted", *(kind.value for kind in Kind))
    screen.table(columns, rows, empty_text="The archive has no records.")
    if result.differences:
        screen.line()
        difference_rows = [
            (each.kind.value, each.topic, each.partition, each.archive_offset, each.topic_offset)
            for each in result.differences
        ]
        titles = ("difference", "topic", "partition", "offset in archive", "in topic")
        screen.table(titles, difference_rows, empty_text="")
    for file in result.lost_files[:FILES_SHOWN_MAX]:
        screen.line(f"{result.path}/{file} is missing")
    report_loss = f", {count_text(len(result.lost_files), 'file')} missing" if result.lost_files else ""
    differences = count_text(result.difference_count, "difference")
    screen.line(
        f"{result.path}: {count_text(result.records, 'record')} compared, {differences}{report_loss}"
        f"; {result.deleted:,} deleted from topics, lag {result.lag:,}; {seconds_text(result.seconds)}"
    )


if __name__ == "__main__":
    command()
