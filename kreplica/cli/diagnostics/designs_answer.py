"""``kreplica designs answer``: answer an open design question by measurement."""

from __future__ import annotations

import click

from kreplica.testing.designs.questions.answers import ANSWERS


@click.command()
@click.argument("question", type=click.Choice(list(ANSWERS)))
def command(question: str) -> None:
    """Answer an open design question by measurement, and print a Markdown table.

    placement: can all replicas of a partition be on dead brokers, and which brokers take over their load?  routing: how
    long do clients send requests to the wrong broker?  slow-zookeeper: how does a high 99th percentile of ZooKeeper's
    latency delay the controller?  stalled-replica: how long does a write wait for a stalled replica, with an in-sync
    set and with a quorum?
    """
    click.echo(ANSWERS[question]())
