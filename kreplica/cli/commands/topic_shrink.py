"""``kreplica topic shrink``: alias of ``kreplica plan make remove-partitions``."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.plans.make import REMOVAL_WAIT_HELP, plan_options, removal_request
from kreplica.cli.terminal.parameter_types import Duration


@click.command()
@click.argument("topic")
@click.argument("partitions", type=click.IntRange(min=1))
@click.option("--wait", "wait_ms", type=Duration(), metavar="DURATION",
              help=REMOVAL_WAIT_HELP)
@plan_options
def command(topic: str, partitions: int, wait_ms: int | None) -> dict[str, Any]:
    """Remove the last partitions of a topic, so that PARTITIONS remain.  Same as `plan make remove-partitions`.

    The removed partitions stay readable, but not writable, for the --wait period; then they are deleted.  Records
    that consumers have not read by then are lost.
    """
    return removal_request(topic, partitions, wait_ms)
