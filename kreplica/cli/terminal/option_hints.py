"""Hints for options and commands of other tools (Apache Kafka's scripts, kcat, rpk) that have different names here."""

from __future__ import annotations

from difflib import get_close_matches

import click

OPTIONS = {
    "--bootstrap-server": ("--bootstrap HOST:PORT", "--admin URL"),
    "--broker-list": ("--bootstrap HOST:PORT", "--admin URL"),
    "--brokers": ("--bootstrap HOST:PORT", "--admin URL"),
    "--by-duration": ("--duration DURATION",),
    "--command-config": ("--client-config FILE",),
    "--compression-codec": ("--codec NAME",),
    "--consumer.config": ("--client-config FILE",),
    "--from-beginning": ("--from earliest",),
    "--isolation-level": ("--read-committed",),
    "--max-messages": ("--count N",),
    "--message-count": ("--count N",),
    "--num": ("--count N",),
    "--offset": ("--from POSITION",),
    "--output": ("--json",),
    "--partition": ("--partitions NUMBERS",),
    "--producer.config": ("--client-config FILE",),
    "--replica-assignment": ("--assign PARTITION=BROKERS",),
    "--replicas": ("--replication-factor N",),
    "--request-required-acks": ("--acks all",),
    "--shift-by": ("--shift N",),
    "--to-datetime": ("--time TIME",),
    "--to-earliest": ("--earliest",),
    "--to-latest": ("--latest",),
    "--to-offset": ("--offset N",),
    "--topic-config": ("--config NAME=VALUE",),
    "--unavailable-partitions": ("--offline",),
    "--under-replicated-partitions": ("--under-replicated",),
    "-b": ("--bootstrap HOST:PORT", "--admin URL"),
    "-o": ("--from POSITION", "--json"),
}
"""Options with the same meaning, by another tool's option; the hint is the first one that the command supports."""

ARGUMENTS = {"--topic": "topic", "-t": "topic", "--group": "group", "-g": "group", "--broker": "broker_id"}
"""Names of arguments with the same meaning, by another tool's option."""

ACTIONS = {
    "--alter": ("set", "grow"),
    "--create": ("create",),
    "--delete": ("delete",),
    "--describe": ("show", "list", "get"),
    "--list": ("list",),
    "--reset-offsets": ("reset",),
}
"""Subcommands with the same meaning, by an option of Kafka's scripts; the hint is the first one in the group."""

SYNONYMS = {"add": "create", "get": "describe", "ls": "list", "remove": "delete", "rm": "delete"}
"""Options of Kafka's scripts, without ``--``, by other tools' subcommands with the same meaning."""


def unknown_command(name: str, context: click.Context) -> click.UsageError:
    """Return the error for an unknown subcommand; it suggests one with the same meaning or a similar name."""
    command = context.command
    assert isinstance(command, click.Group)
    names = command.list_commands(context)
    synonyms = [action for action in ACTIONS.get(f"--{SYNONYMS.get(name, name)}", ()) if action in names]
    suggestions = synonyms or get_close_matches(name, names, n=1)
    hint = f" Did you mean {suggestions[0]!r}?" if suggestions else f" Try '{context.command_path} --help'."
    return click.UsageError(f"No such command {name!r}.{hint}", context)


def with_hint(error: click.NoSuchOption) -> click.UsageError:
    """Return an error that also names the replacement; the same error if no replacement is known."""
    context = error.ctx
    hint = None if context is None else _hint(error.option_name, context)
    if hint is None:
        return error
    return click.UsageError(f"{error.message} {hint}", context)


def _hint(name: str, context: click.Context) -> str | None:
    command = context.command
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        for action in ACTIONS.get(name, ()):
            if action in names:
                return f"Use {context.command_path} {action}."
    supported = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for option in OPTIONS.get(name, ()):
        if option.partition(" ")[0] in supported:
            return f"Use {option}."
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.name == ARGUMENTS.get(name):
            usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")
            return f"Pass it as an argument: {context.command_path} {usage}"
    return None
