"""``kreplica pipeline``: Spark pipelines over whole topics."""

from __future__ import annotations

import click

from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand

SUBCOMMANDS = {
    "archive": Subcommand("pipelines.pipeline_archive", "Archive topics as Parquet files, each record once."),
    "replay": Subcommand("pipelines.pipeline_replay", "Write an archive's records to topics, each once and in order."),
    "audit": Subcommand(
        "pipelines.pipeline_audit", "Compare all replicas of a cluster, from files or through brokers."
    ),
    "compare": Subcommand(
        "pipelines.pipeline_compare", "Compare an archive with topics: missing, duplicate or different records."
    ),
    "profile": Subcommand("pipelines.pipeline_profile", "Measure topics: sizes, rates, keys, codecs, producers."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Spark pipelines over whole topics, on this machine or on a Spark cluster (--master).

    Requires pip install 'kreplica[spark]', which includes Java.  The module of each command can also be run by
    spark-submit (docs/how-to/pipelines.md).
    """
