"""Manual pages of all commands in the format of man(7), generated from the commands and their help texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

from kreplica import __version__
from kreplica.cli.terminal.reference import root_context, subcommand_contexts

SECTION = 1


def manual_pages() -> dict[str, str]:
    """Return the pages by file name: ``kreplica.1``, ``kreplica-topic.1``, ``kreplica-topic-create.1`` and so on."""
    with root_context() as context:
        return dict(_pages(context))


def _pages(context: click.Context) -> Iterator[tuple[str, str]]:
    if not isinstance(context.command, click.Group):
        yield _file_name(context), _page(context, [])
        return
    rows = []
    for inner in subcommand_contexts(context):
        rows.append((inner.command_path, inner.command.get_short_help_str(limit=200)))
        yield from _pages(inner)
    yield _file_name(context), _page(context, rows)


def _file_name(context: click.Context) -> str:
    return f"{_page_name(context.command_path)}.{SECTION}"


def _page_name(command_path: str) -> str:
    return command_path.replace(" ", "-")


def _page(context: click.Context, subcommands: Sequence[tuple[str, str]]) -> str:
    command, path = context.command, context.command_path
    name = _page_name(path)
    summary = command.get_short_help_str(limit=200).rstrip(".")
    lines = [
        f'.TH "{_escape(name.upper())}" {SECTION} "" "kreplica {_escape(__version__)}" "kreplica"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(summary)}",
        ".SH SYNOPSIS",
        f".B {_escape(path)}",
        _line(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    options = [row for row in (each.get_help_record(context) for each in command.get_params(context)) if row]
    if options:
        lines.append(".SH OPTIONS")
        for names, text in options:
            lines += [".TP", f"\\fB{_escape(names)}\\fR", _line(" ".join(text.split()))]
    if subcommands:
        lines.append(".SH COMMANDS")
        for subcommand, text in subcommands:
            lines += [".TP", f"\\fB{_escape(_page_name(subcommand))}\\fR({SECTION})", _line(text)]
    if context.parent is not None:
        lines += [".SH SEE ALSO", f"\\fB{_escape(_page_name(context.parent.command_path))}\\fR({SECTION})"]
    return "\n".join(lines) + "\n"


def _paragraphs(help_text: str) -> Iterator[str]:
    """Yield the lines of a help text; a paragraph that starts with a backspace keeps its line breaks."""
    for number, paragraph in enumerate(inspect.cleandoc(help_text).split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b\n"):
            yield from (".nf", ".RS 4", *map(_line, paragraph[2:].splitlines()), ".RE", ".fi")
        else:
            yield _line(" ".join(paragraph.split()))


def _line(text: str) -> str:
    """Return a line of text, escaped so that groff does not read it as a request."""
    escaped = _escape(text.rstrip())
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


_ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})
"""Characters that groff would replace with typographic ones, or that start an escape."""


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
