"""Options of Kafka's scripts, kcat and rpk: the error names kreplica's option, argument or command."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.cli.terminal.option_hints import ACTIONS, ARGUMENTS, OPTIONS
from kreplica.cli.terminal.reference import root_context, subcommand_contexts
from kreplica.service.process.options import StandaloneOptions


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("consume --bootstrap-server a:1 orders", "No such option '--bootstrap-server'. Use --bootstrap HOST:PORT."),
        ("topic list --bootstrap-server a:1", "Use --admin URL."),
        ("consume orders --from-beginning", "Use --from earliest."),
        ("consume --topic orders", "Pass it as an argument: kreplica consume TOPIC"),
        ("consume orders --max-messages 5", "Use --count N."),
        ("topic --list", "Use kreplica topic list."),
        ("topic --describe", "Use kreplica topic show."),
        ("group --reset-offsets", "Use kreplica group reset."),
        ("group reset shop --to-earliest", "Use --earliest."),
        ("group lag --group shop", "Pass it as an argument: kreplica group lag GROUP"),
        ("topic create orders --replica-assignment 1:2", "Use --assign PARTITION=BROKERS."),
        ("consume orders --partition 3", "Use --partitions NUMBERS."),
        ("topic list --jsn", "Did you mean '--json'?"),
        ("topics", "Did you mean 'topic'?"),
        ("topic lst", "Did you mean 'list'?"),
        ("topic describe orders", "Did you mean 'show'?"),
        ("group ls", "Did you mean 'list'?"),
        ("broker xyz", "Try 'kreplica broker --help'."),
    ],
)
def test_hints(words: str, hint: str) -> None:
    """A foreign option is a usage error with a hint."""
    done = CliRunner().invoke(main, words.split(), prog_name="kreplica")
    assert (done.exit_code, hint in done.stderr) == (2, True), done.stderr


def commands() -> list[click.Command]:
    """Return all commands."""
    all_commands = []

    def add(context: click.Context) -> None:
        all_commands.append(context.command)
        if isinstance(context.command, click.Group):
            for each in subcommand_contexts(context):
                add(each)

    with root_context() as context:
        add(context)
    return all_commands


def test_hints_are_current() -> None:
    """Each hint names an existing option, argument or subcommand."""
    parameters = [parameter for command in commands() for parameter in command.params]
    options = {name for each in parameters for name in (*each.opts, *each.secondary_opts)}
    assert {option.partition(" ")[0] for hints in OPTIONS.values() for option in hints} <= options
    assert set(ARGUMENTS.values()) <= {each.name for each in parameters if isinstance(each, click.Argument)}
    subcommands = {command.name for command in commands()}
    assert {action for actions in ACTIONS.values() for action in actions} <= subcommands


def test_old_name_of_the_zookeeper_port(capsys: pytest.CaptureFixture[str]) -> None:
    """The old option still works, and a warning names the new one."""
    options = StandaloneOptions()
    options.parseOptions(["--coordinator-port=2182"])
    assert options["zookeeper-port"] == 2182
    assert "use --zookeeper-port" in capsys.readouterr().err
