"""The ``kreplica`` command; a file per subcommand, imported only when it is asked for.

* ``simulate`` whole clusters from a seed, with faults
* ``replay`` what a controller noted of its decisions
* ``verify`` any Kafka-compatible cluster, from outside
"""

from __future__ import annotations

from importlib import import_module

import click

from kreplica import __version__

SUBCOMMANDS = {
    "simulate": "Run whole clusters with faults on virtual time, from seeds.",
    "replay": "Decide again what a controller decided, from its journal.",
    "verify": "Load any Kafka-compatible cluster, and report what it did wrong.",
}
"""By name: one line of help.  The command itself is ``command`` in the module of that name."""


class _Subcommands(click.Group):
    """Imports a subcommand when it runs: one does not wait for what another needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = import_module(f"kreplica.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(cls=_Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="kreplica %(version)s")
def main() -> None:
    """A replicated log server that speaks the Kafka protocol: its tools."""
