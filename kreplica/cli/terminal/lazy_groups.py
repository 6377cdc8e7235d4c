"""Command groups that import a subcommand's module only when it runs, so that ``--help`` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from kreplica.cli.terminal.option_hints import unknown_command, with_hint

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class Subcommand(NamedTuple):
    """A subcommand that has not been imported yet.

    :param module: module that defines it as ``command``, relative to ``kreplica.cli``.
    :param help: one line for the help of the group.
    """

    module: str
    help: str


class LazyGroup(click.Group):
    """A group that lists its subcommands by name and help line, and imports a subcommand when it is used."""

    def __init__(
        self, *arguments: Any, subcommands: Mapping[str, Subcommand] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._subcommands = dict(subcommands or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands: first those defined in the group's own module."""
        return [*self.commands, *(name for name in self._subcommands if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, importing its module if necessary."""
        if cmd_name not in self._subcommands:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"kreplica.cli.{self._subcommands[cmd_name].module}")
        command: click.Command = module.command
        command.name = cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and its arguments.

        :raise click.UsageError: the command is unknown; the error includes a hint.
        """
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise unknown_command(name, ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the group's own options.

        :raise click.UsageError: an option is unknown; the error includes a hint.
        """
        try:
            return super().make_context(*arguments, **options)
        except click.NoSuchOption as error:
            raise with_hint(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Parse and run a subcommand.

        :raise click.UsageError: an option is unknown; the error includes a hint.
        """
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise with_hint(error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section of commands without importing their modules."""
        rows = [(name, command.get_short_help_str(limit=100)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*rows, *((name, entry.help) for name, entry in self._subcommands.items())])
