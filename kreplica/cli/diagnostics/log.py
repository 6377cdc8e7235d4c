"""``kreplica log``: inspection of a broker's log files."""

from __future__ import annotations

import click

from kreplica.cli.terminal.lazy_groups import LazyGroup, Subcommand

SUBCOMMANDS = {
    "dump": Subcommand("diagnostics.log_dump", "Print the content of log files."),
    "verify": Subcommand("diagnostics.log_verify", "Check every byte of logs: checksums, order, indexes, epochs."),
}


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Inspect the log files of a kreplica or Apache Kafka broker; files are never changed."""
