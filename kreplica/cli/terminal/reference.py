"""Reference of all commands and options in Markdown, for ``docs/reference/command-line.md``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kreplica.cli import main
from kreplica.cli.http.session import with_session

WIDTH = 10_000


def reference() -> str:
    """Return the sections of all commands."""
    with root_context() as context:
        return "\n\n".join(_sections(context))


@contextmanager
def root_context() -> Iterator[click.Context]:
    """Open the context of ``kreplica`` without running it."""
    with main.make_context("kreplica", [], resilient_parsing=True) as context:
        yield context


def subcommand_contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield an open context of each subcommand of a group."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        settings = {**command.context_settings, "terminal_width": WIDTH}
        with click.Context(command, info_name=name, parent=context, **settings) as inner:
            yield inner


def _sections(context: click.Context) -> Iterator[str]:
    for inner in subcommand_contexts(context):
        yield _section(inner.command, inner)
        if isinstance(inner.command, click.Group):
            yield from _sections(inner)


def _section(command: click.Command, context: click.Context) -> str:
    level = "#" * min(2 + context.command_path.count(" "), 4)
    words = [context.command_path]
    if not isinstance(command, click.Group):
        words += [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    parts = [f"{level} {context.command_path}", _text(command.help or "")]
    if len(words) > 1:
        parts.insert(1, f"`{' '.join(words)}`")
    options = list(_options(command, context))
    if options:
        parts.append("\n".join(["| option | |", "|---|---|", *options]))
    return "\n\n".join(parts)


def _text(help_text: str) -> str:
    """Convert a help text to Markdown; preformatted paragraphs become code blocks."""
    paragraphs = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            paragraphs.append(f"```\n{paragraph[2:]}\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield a table row per option, without the common options of commands that use the admin API."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if not isinstance(parameter, click.Option) or record is None or "--help" in parameter.opts:
            continue
        if _COMMON.get(parameter.name) == parameter.help:
            continue
        names, text = record
        yield f"| `{_cell(names)}` | {_cell(text)} |"


_COMMON = {
    parameter.name: parameter.help
    for parameter in click.command()(with_session(lambda session: None)).params
    if isinstance(parameter, click.Option)
}


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
