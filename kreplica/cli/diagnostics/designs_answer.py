"""``kreplica designs answer``: answer an open design question by measurement."""

from __future__ import annotations

import click

from kreplica.testing.designs.questions.answers import ANSWERS


@click.command()
@click.argument("question", type=click.Choice(list(ANSWERS)))
def command(question: str) -> None:
    """Answer an open design question by measurement, and print a Markdown table.

    placement: can all replicas of a partition be on dead brokers, and which brokers take over their load?  routing: how
    long do clients send requests to the wrong broker?  slow-zookeeper: what if ZooKeeper's 99th percentile is slow?
    stalled-replica: how long do in-sync replicas and a quorum wait for a replica that stalls?
    """
    click.echo(ANSWERS[question]())
