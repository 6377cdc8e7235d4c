"""``kreplica pipeline profile``: what topics hold; also a module for ``spark-submit``."""

from __future__ import annotations

import click

from kreplica.cli.data_access import accounted, bootstrap_option
from kreplica.cli.pipeline_running import (
    kafka_options,
    print_json,
    progress_shown,
    spark_choice,
    spark_for,
    spark_options,
)
from kreplica.cli.profile_views import describe_profile
from kreplica.cli.screen import Screen


@click.command
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_option()
@click.option("--log-dirs", metavar="DIR,...", help="Read the log directories of one broker instead of asking brokers.")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
              help="The share of batches whose records are looked into; headers are read of all.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True,
              help="So many keys and producers of each topic.")  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="An option of the source, as startingTimestamp=...; more than one may be.")  # fmt: skip
@spark_options
def command(
    topics: tuple[str, ...],
    bootstrap: str,
    log_dirs: str | None,
    sample: float,
    top: int,
    options: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure what topics hold: sizes, rates, keys, codecs, producers; all topics unless some are named.

    It only reads, up to the high watermarks of now.  Of a sample, records, bytes and codecs are still those of all
    batches; keys and sizes of values are those of the sample.

    \b
    kreplica pipeline profile orders payments
    kreplica pipeline profile --log-dirs /var/lib/kreplica/1 --sample 0.05 --json
    """
    given = {**kafka_options(options), **_source(topics, bootstrap, log_dirs)}
    choice = spark_choice(master, conf)
    with (
        accounted(lambda: "a profile only reads"),
        spark_for("kreplica pipeline profile", choice) as spark,
        progress_shown() as report,
    ):
        from kreplica.spark.pipelines.profile import profile

        found = profile(spark, given, sample=sample, top=top, report=report)
    if as_json:
        print_json(found)
    else:
        describe_profile(Screen(), found)


def _source(topics: tuple[str, ...], bootstrap: str, log_dirs: str | None) -> dict[str, str]:
    """Options of the source that say what is read."""
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": ".*"}
    if log_dirs is None:
        return {"kafka.bootstrap.servers": bootstrap, **chosen}
    return {"kreplica.source": "segments", "kreplica.log.dirs": log_dirs, **chosen}


if __name__ == "__main__":
    command()
