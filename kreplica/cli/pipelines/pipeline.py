"""``kreplica pipeline``: whole topics through Spark."""

from __future__ import annotations

import click

from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand

SUBCOMMANDS = {
    "archive": Subcommand("pipelines.pipeline_archive", "Topics to Parquet files, each record once."),
    "replay": Subcommand("pipelines.pipeline_replay", "An archive's records to topics, each once, in order."),
    "audit": Subcommand(
        "pipelines.pipeline_audit", "Compare all replicas of a cluster, from their files or through their brokers."
    ),
    "compare": Subcommand(
        "pipelines.pipeline_compare", "An archive against its topics: what is missing, doubled or different."
    ),
    "profile": Subcommand("pipelines.pipeline_profile", "What topics hold: sizes, rates, keys, codecs, producers."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Whole topics through Spark, on this machine or on a cluster (--master).

    Needs what pip install 'kreplica[spark]' brings, and nothing else: a Java comes with it.  Each command's module is
    also one for spark-submit (docs/how-to/pipelines.md).
    """
