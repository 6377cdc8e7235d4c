"""``kreplica pipeline archive``: archive topics as Parquet files; ``spark-submit`` can run the module."""

from __future__ import annotations

import click

from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    kafka_options,
    print_json,
    progress_shown,
    spark_choice,
    spark_for,
    spark_options,
)
from kreplica.cli.records.data_access import bootstrap_option, reported_on_failure
from kreplica.cli.terminal.screen import Screen, bytes_text, counted, seconds_text
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
    help="All topics whose whole name matches this Python regular expression, including topics created later.",
)
@click.option("--follow", is_flag=True, help="Continue to archive new records; otherwise stop at the current log end.")
@click.option("--every", metavar="TIME", default=FOLLOW_EVERY, show_default=True,
              help="With --follow: interval between writes, in Spark's notation.")  # fmt: skip
@read_uncommitted_option
@click.option("--values", type=click.Choice(VALUES), default=VALUES[0], show_default=True,
              help="json: also parse values into a column json, whose fields may change over time.")  # fmt: skip
@click.option(
    "--codec", type=click.Choice(CODECS), default=CODECS[0], show_default=True, help="Codec of the Parquet files."
)
@click.option("--batch-records", type=click.IntRange(min=1), default=BATCH_RECORDS_MAX, show_default=True,
              help="Maximum records per batch; after a crash at most one batch is processed again.")  # fmt: skip
@click.option("--adopt", is_flag=True, help="Continue an archive of another cluster or of other topics.")
@click.option("--allow-data-loss", is_flag=True, help="Skip records that the cluster deletes before they are archived.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A source option, for example kafka.fetch.max.bytes=...; may be repeated.")  # fmt: skip
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

    PATH is a directory, which all machines of a Spark cluster must share, or a URI that Spark supports: hdfs://...,
    s3a://....  Run the same command again to resume where the last run ended, even after a crash; the
    archive has no duplicates.

    \b
    kreplica pipeline archive --topics orders,payments /data/archive
    kreplica pipeline archive --pattern 'orders-.*' --follow --every '5 minutes' --values json /data/orders
    """
    names = comma_separated(topics)
    if bool(names) == bool(pattern):
        raise click.UsageError("give either --topics or --pattern")
    wanted = ArchiveOptions(
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
        kafka=kafka_options(options),
    )
    choice = spark_choice(master, conf)
    with (
        reported_on_failure(lambda: "the same command resumes after the last complete batch"),
        spark_for("kreplica pipeline archive", choice) as spark,
        progress_shown() as report,
    ):
        done = archive(spark, path, wanted, report)
    if as_json:
        print_json(done)
    else:
        _show(Screen(), done)


def _show(screen: Screen, done: ArchiveReport) -> None:
    rows = [(each.topic, each.partitions, each.records, each.lag) for each in done.topics]
    screen.table(("topic", "partitions", "records", "lag"), rows, nothing="The topics have no records.")
    if done.first_batch is None:
        screen.line(f"{done.path}: no new records, lag {done.lag:,}")
        return
    rate = done.records / max(done.seconds, 1e-3)
    screen.line(
        f"{done.path}: {counted(done.records, 'record')} in {counted(done.batches, 'batch', 'batches')},"
        f" the first is {done.first_batch}; {counted(done.files, 'file')}, {bytes_text(done.size_bytes)},"
        f" {seconds_text(done.seconds)}, {rate:,.0f} records/s, lag {done.lag:,}"
    )


if __name__ == "__main__":
    command()
