"""Groups of commands whose modules are imported only when they run: ``--help`` waits for none of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class LazyGroup(click.Group):
    """A group that knows its commands by name and by a line of help.

    :param later: name -> one line of help.  The command itself is ``command`` in the module of this package that has
        the words as its name, with ``_`` between them: ``topic export`` is in ``topic_export``.
    """

    def __init__(self, *arguments: Any, later: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = dict(later or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were told of, those that are imported later at the end."""
        return [*self.commands, *(name for name in self._later if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports it, where that is needed."""
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        module = "_".join([*_words_after_program(ctx), cmd_name]).replace("-", "_")
        command: click.Command = import_module(f"kreplica.cli.{module}").command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing anything."""
        rows = [(name, command.get_short_help_str(limit=100)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*rows, *self._later.items()])


def _words_after_program(context: click.Context) -> list[str]:
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, str(context.command.name))
        context = context.parent
    return words
