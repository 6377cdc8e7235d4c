"""``kreplica start``: start a cluster on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from twisted.python.reflect import accumulateClassList

from kreplica.cli.local.cluster_process import BackgroundCluster, become_cluster, refuse_if_running
from kreplica.cli.terminal.parameter_types import ParameterType
from kreplica.runtime.interpreter import interpreter
from kreplica.service.process.banner import ClusterAddresses, banner
from kreplica.service.process.options import StandaloneOptions
from kreplica.service.standalone.data_directory_lock import ClusterState

_METAVARS = {"brokers": "COUNT", "dir": "DIRECTORY", "port": "PORT", "id": "ID", "host": "HOST", "format": "FORMAT",
             "interface": "ADDRESS"}  # fmt: skip
"""Placeholders of option values, by the last word of the option's name."""


class _Checked(ParameterType):
    """A value that is validated by a function of the options of ``twistd kreplica standalone``."""

    name = "text"

    def __init__(self, check: Callable[[str], Any]) -> None:
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._check(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _rows(attribute: str) -> list[list[Any]]:
    rows: list[list[Any]] = []
    accumulateClassList(StandaloneOptions, attribute, rows)
    return rows


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _names(name: str, short: str | None) -> list[str]:
    return [f"--{name}", *([f"-{short}"] if short else []), name.replace("-", "_")]


def _option(name: str, short: str | None, default: Any, text: str, check: Callable[[str], Any] = str) -> Any:
    return click.option(
        *_names(name, short),
        default=default,
        show_default=True,
        type=_Checked(check),
        metavar=_METAVARS[name.rpartition("-")[2]],
        help=_sentence(text),
    )


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of ``twistd kreplica standalone``, with the same names, defaults and checks."""
    rows = sorted(_rows("optParameters"), key=lambda row: row[0] == "log-format")
    options = [_option(*row) for row in rows]
    flags = [
        click.option(*_names(name, short), is_flag=True, help=_sentence(text))
        for name, short, text in _rows("optFlags")
    ]
    override = click.option("--override", "overrides", multiple=True, metavar="NAME=VALUE",
                            help="A setting for all brokers; may be repeated.")  # fmt: skip
    check_port = next(row[4] for row in rows if row[0] == "zookeeper-port")
    old_port = click.option("--coordinator-port", type=_Checked(check_port), hidden=True)
    for option in reversed([options[0], *flags, *options[1:], override, old_port]):
        command = option(command)
    return command


@click.command()
@cluster_options
@click.option("--background", "-b", is_flag=True,
              help="Return when the cluster is ready; `kreplica stop` stops it.")  # fmt: skip
def command(
    background: bool, overrides: tuple[str, ...], data_dir: str, coordinator_port: int | None, **values: Any
) -> None:
    """Start a cluster on this machine: brokers and an embedded ZooKeeper server, on loopback by default.

    Without --background, the command prints the log and runs until Ctrl-C is pressed.  With it, the log is written to
    kreplica.log in the data directory.  The addresses are printed when the cluster is ready.

    The data persists: the same command starts the same cluster again, even after kill -9.  Only one cluster at a time
    can use a data directory.

    \b
    kreplica start
    kreplica start --brokers 3 --processes --background
    kreplica start --override log.retention.ms=3600000 --data-dir /tmp/kreplica
    """
    if coordinator_port is not None:
        click.echo("kreplica: --coordinator-port is deprecated; use --zookeeper-port", err=True)
        values["zookeeper_port"] = coordinator_port
    _check(overrides, values)
    directory = Path(data_dir).absolute()
    words = _words(values, overrides, directory)
    if not background:
        refuse_if_running(directory)
        become_cluster(words)
    cluster = BackgroundCluster(directory, words)
    state = cluster.wait_until_ready(
        lambda: click.echo(f"kreplica: process {cluster.pid} is still starting; its log: {cluster.log}", err=True)
    )
    addresses, python = _addresses(state, directory), str(interpreter())
    click.echo(banner(state.version, addresses, python, log_file=str(cluster.log)), nl=False)


def _check(overrides: tuple[str, ...], values: dict[str, Any]) -> None:
    """Report the errors that ``StandaloneOptions`` finds as errors of this command."""
    from twisted.python.usage import UsageError

    options = StandaloneOptions()
    options.update({name.replace("_", "-"): value for name, value in values.items()})
    try:
        for override in overrides:
            options.opt_override(override)
        options.postOptions()
    except UsageError as error:
        raise click.UsageError(str(error)) from None


def _words(values: dict[str, Any], overrides: tuple[str, ...], directory: Path) -> list[str]:
    """Return the options of ``twistd kreplica standalone``."""
    words = [f"--data-dir={directory}"]
    for parameter, value in values.items():
        name = parameter.replace("_", "-")
        if value is True:
            words.append(f"--{name}")
        elif value is not False and value is not None:
            words.append(f"--{name}={value}")
    return [*words, *(f"--override={override}" for override in overrides)]


def _addresses(state: ClusterState, directory: Path) -> ClusterAddresses:
    return ClusterAddresses(
        state.bootstrap_servers, state.admin_url, state.coordinator or "", str(directory), state.security_directory
    )
