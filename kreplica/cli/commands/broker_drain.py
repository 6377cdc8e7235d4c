"""``kreplica broker drain``: alias of ``kreplica plan make drain``."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.plans.make import drain_request, plan_options


@click.command()
@click.argument("brokers", nargs=-1, required=True, type=click.IntRange(min=0), metavar="BROKER...")
@plan_options
def command(brokers: tuple[int, ...]) -> dict[str, Any]:
    """Move all replicas off brokers and cordon them.  Same as `plan make drain`."""
    return drain_request(brokers)
