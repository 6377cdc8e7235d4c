"""``kreplica log``: what a broker's files hold."""

from __future__ import annotations

import click

from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand

SUBCOMMANDS = {
    "dump": Subcommand("diagnostics.log_dump", "Print what a file of a log holds."),
    "verify": Subcommand("diagnostics.log_verify", "Check every byte of logs: checksums, order, indexes, epochs."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """A broker's files, of kreplica and of Apache Kafka: looked at, never changed."""
