"""``kreplica topic shrink``: alias of ``kreplica plan make remove-partitions``."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.commands.plan_make import plan_options, removed_partitions
from kreplica.cli.terminal.parameter_types import Duration


@click.command()
@click.argument("topic")
@click.argument("partitions", type=click.IntRange(min=1))
@click.option("--wait", "wait_ms", type=Duration(), metavar="DURATION",
              help="How long consumer groups may take to read the remaining records, for example 10m.")  # fmt: skip
@plan_options
def command(topic: str, partitions: int, wait_ms: int | None) -> dict[str, Any]:
    """Remove the last partitions of a topic; PARTITIONS remain.  Same as `plan make remove-partitions`."""
    return removed_partitions(topic, partitions, wait_ms)
