"""``kreplica pipeline``: whole topics through Spark."""

from __future__ import annotations

import click

from kreplica.cli.terminal.lazy_groups import LazyGroup

LATER = {
    "archive": "Topics to Parquet files, each record once.",
    "replay": "An archive's records to topics, each once, in order.",
    "audit": "Prove that all replicas of a cluster agree, from their files or from their brokers.",
    "compare": "An archive against its topics: what is missing, doubled or different.",
    "profile": "What topics hold: sizes, rates, keys, codecs, producers.",
}


@click.group(cls=LazyGroup, later=LATER)
def command() -> None:
    """Whole topics through Spark, on this machine or on a cluster (--master).

    Needs what pip install 'kreplica[spark]' brings, and nothing else: a Java comes with it.  Each command's module is
    also one for spark-submit (docs/how-to/pipelines.md).
    """
