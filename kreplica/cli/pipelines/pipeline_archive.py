"""``kreplica pipeline archive``: archive topics as Parquet files; ``spark-submit`` can run the module."""

from __future__ import annotations

import click

from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    open_spark,
    parse_options,
    parse_spark_options,
    print_json,
    show_progress,
    spark_options,
)
from kreplica.cli.records.data_access import bootstrap_option, client_config_option, report_failures
from kreplica.cli.terminal.screen import Screen, bytes_text, count_text, seconds_text
from kreplica.cli.transfer.topic_options import read_uncommitted_option
from kreplica.spark.pipelines.archive.archive import (
    BATCH_RECORDS_MAX,
    FOLLOW_EVERY,
    ArchiveOptions,
    ArchiveReport,
    archive,
)
from kreplica.spark.pipelines.archive.layout import VALUES

CODECS = ("zstd", "snappy", "gzip", "lz4_raw", "uncompressed")


@click.command
@click.argument("path")
@bootstrap_option()
@click.option("--topics", metavar="NAME,...", help="Topics to archive.")
@click.option(
    "--pattern",
    metavar="REGEX",
    help="All topics whose full name matches this Python regular expression, including topics created later.",
)
@click.option("--follow", is_flag=True, help="Archive new records until Ctrl-C; otherwise, stop at the log end.")
@click.option("--every", metavar="TIME", default=FOLLOW_EVERY, show_default=True,
              help="With --follow: interval between batches, such as '30 seconds'.")  # fmt: skip
@read_uncommitted_option
@click.option("--values", type=click.Choice(VALUES), default=VALUES[0], show_default=True,
              help="With json, values are also parsed into a column json; the fields of this column may change as new "
                   "values are read.")  # fmt: skip
@click.option(
    "--codec", type=click.Choice(CODECS), default=CODECS[0], show_default=True, help="Codec of the Parquet files."
)
@click.option("--batch-records", type=click.IntRange(min=1), default=BATCH_RECORDS_MAX, show_default=True,
              help="Maximum records per batch.  After a crash, at most one batch is read again.")  # fmt: skip
@click.option("--adopt", is_flag=True, help="Continue an archive that was created from another cluster, or with "
              "different --topics, --pattern, --read-uncommitted or --values.")
@click.option("--allow-data-loss", is_flag=True, help="Skip records that the cluster deletes before they are archived.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A source option, for example kafka.fetch.max.bytes=...; may be repeated.")  # fmt: skip
@client_config_option()
@spark_options
def command(
    path: str,
    bootstrap: str,
    topics: str | None,
    pattern: str | None,
    follow: bool,
    every: str,
    read_uncommitted: bool,
    values: str,
    codec: str,
    batch_records: int,
    adopt: bool,
    allow_data_loss: bool,
    options: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Archive topics in a directory of Parquet files, each record once.

    PATH is a directory, which all machines of a Spark cluster must share, or a URI that Spark supports (hdfs://...,
    s3a://...).  The same command resumes after an interruption or a crash, without duplicates in the archive.

    \b
    kreplica pipeline archive --topics orders,payments /data/archive
    kreplica pipeline archive --pattern 'orders-.*' --follow --every '5 minutes' --values json /data/orders
    """
    names = comma_separated(topics)
    if bool(names) == bool(pattern):
        raise click.UsageError("specify either --topics or --pattern")
    pipeline_options = ArchiveOptions(
        bootstrap=bootstrap,
        topics=names,
        pattern=pattern or None,
        read_committed=not read_uncommitted,
        values=values,
        codec=codec,
        batch_records_max=batch_records,
        follow_every=every if follow else None,
        adopt=adopt,
        allow_data_loss=allow_data_loss,
        kafka=parse_options(options),
    )
    spark_settings = parse_spark_options(master, conf)
    with (
        report_failures(lambda: "the same command resumes after the last complete batch"),
        open_spark("kreplica pipeline archive", spark_settings) as spark,
        show_progress() as report,
    ):
        result = archive(spark, path, pipeline_options, report)
    if as_json:
        print_json(result)
    else:
        _print_report(Screen(), result)


def _print_report(screen: Screen, result: ArchiveReport) -> None:
    rows = [(each.topic, each.partitions, each.records, each.lag) for each in result.topics]
    screen.table(("topic", "partitions", "records", "lag"), rows, empty_text="The topics have no records.")
    if result.first_batch is None:
        screen.line(f"{result.path}: no new records, lag {result.lag:,}")
        return
    rate = result.records / max(result.seconds, 1e-3)
    screen.line(
        f"{result.path}: {count_text(result.records, 'record')} in {count_text(result.batches, 'batch', 'batches')},"
        f" starting with batch {result.first_batch}; {count_text(result.files, 'file')},"
        f" {bytes_text(result.size_bytes)},"
        f" {seconds_text(result.seconds)}, {rate:,.0f} records/s, lag {result.lag:,}"
    )


if __name__ == "__main__":
    command()
