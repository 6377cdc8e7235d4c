"""Shared parts of the pipeline commands: options, Spark session, progress, report as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.data_access import client_config
from kreplica.cli.records.data_progress import records_text
from kreplica.cli.terminal.progress_bar import ProgressBar
from kreplica.cli.terminal.screen import bytes_text
from kreplica.errors import KreplicaError, reason_of
from kreplica.spark.pipelines.progress import Progress, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])

LINE_INTERVAL_S = 10.0
"""Interval between progress lines if standard error is not a terminal."""

MODULES = ("pyspark", "pyarrow", "numpy")


class SparkOptions(NamedTuple):
    """Spark options of a command.

    :param master: master URL; None for that of ``spark-submit``, or for this machine without ``spark-submit``.
    """

    master: str | None
    settings: Mapping[str, str]


def spark_options(function: F) -> F:
    """Add ``--master``, ``--conf`` and ``--json``, as the arguments ``master``, ``conf`` and ``as_json``."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object."),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated."),
        click.option("--master", metavar="URL", help="Spark master URL.  [default: this machine]"),
    ):
        function = decorate(function)
    return function


def parse_options(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the options of the data source: the settings of ``--client-config``, and the values of ``--option``.

    :raise click.BadParameter: a value is malformed.
    :raise CommandFailed: the file of ``--client-config`` cannot be read.
    """
    return {f"kafka.{name}": value for name, value in client_config().items()} | pairs(texts, "--option")


def parse_spark_options(master: str | None, conf: tuple[str, ...]) -> SparkOptions:
    """Parse the arguments that ``spark_options`` adds.

    :raise click.BadParameter: a setting is malformed.
    """
    return SparkOptions(master, pairs(conf, "--conf"))


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Parse the ``NAME=VALUE`` pairs of a repeatable option.

    :raise click.BadParameter: a pair is malformed.
    """
    settings = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        settings[name.strip()] = value.strip()
    return settings


def comma_separated(text: str | None) -> tuple[str, ...]:
    """Split a list such as ``orders,payments``; empty for None."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@contextmanager
def open_spark(name: str, spark_settings: SparkOptions) -> Iterator[SparkSession]:
    """Yield a Spark session, and convert expected errors in the block to short messages.

    :raise CommandFailed: Spark or Java is not installed, or the pipeline failed.
    """
    missing = [each for each in MODULES if find_spec(each) is None]
    if missing:
        raise CommandFailed(f"{', '.join(missing)}: not installed; run pip install 'kreplica[spark]'")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kreplica.spark.session import spark_session

    quiet = {"spark.ui.showConsoleProgress": "false", **spark_settings.settings}
    try:
        session = spark_session(name, master=spark_settings.master, settings=quiet)
        session.sparkContext.setLogLevel("FATAL")
    except (PySparkException, KreplicaError) as error:
        raise CommandFailed(reason_of(error, with_path=True)) from error
    except Py4JError as error:
        spark = f"Spark at {spark_settings.master}" if spark_settings.master else "Spark"
        raise CommandFailed(f"{spark} could not start (details in its log above): {java_cause(error)}") from error
    try:
        yield session
    except (KreplicaError, ValueError, OSError) as error:
        raise CommandFailed(reason_of(error, with_path=True)) from error
    except (PySparkException, Py4JError) as error:
        raise CommandFailed(python_cause(error)) from error
    finally:
        session.stop()


def java_cause(error: Exception) -> str:
    """Return the first line that names a Java exception; if there is none, the first line of the error."""
    lines = [line.strip(": ") for line in str(error).splitlines()]
    return next((line for line in lines if "Exception" in line or "Error:" in line), lines[0] if lines else "")


def python_cause(error: Exception) -> str:
    """Return the message of the Python exception in a Spark error; if there is none, the first lines of the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    traced = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if traced:
        for line in lines[traced[-1] + 1 :]:
            name, sign, text = line.partition(": ")
            if (
                sign
                and "." in name
                and name.replace(".", "").replace("_", "").isalnum()
                and not name.startswith("File")
            ):
                return text
            if sign and name in ("ValueError", "RuntimeError", "OSError"):
                return text
            if name == "ModuleNotFoundError":
                return f"{text} on the Spark executors: install it there, or ship it to them (docs/how-to/spark.md)"
    return "\n".join(lines[:20]) or type(error).__name__


@contextmanager
def show_progress() -> Iterator[Report]:
    """Show progress on standard error: as a bar on a terminal, otherwise as a line every ``LINE_INTERVAL_S``."""
    started_s = printed_s = monotonic()

    def rates(progress: Progress) -> str:
        seconds = max(monotonic() - started_s, 1e-3)
        if progress.size_bytes and not progress.records:
            return f"{bytes_text(progress.size_bytes)}, {progress.size_bytes / seconds / 1e6:,.0f} MB/s"
        size = f", {bytes_text(progress.size_bytes)}" if progress.size_bytes else ""
        return f"{records_text(progress.records)}{size}, {progress.records / seconds:,.0f} records/s"

    def print_line(progress: Progress) -> None:
        nonlocal printed_s
        if monotonic() - printed_s >= LINE_INTERVAL_S:
            printed_s = monotonic()
            share = f" {100 * progress.done / progress.total:.0f} %" if progress.total else ""
            click.echo(f"{progress.activity}{share}: {rates(progress)}", err=True)

    with ProgressBar() as bar:

        def move_bar(progress: Progress) -> None:
            bar.update(progress.done, lambda: rates(progress), description=progress.activity, total=progress.total)

        yield move_bar if bar.is_drawn else print_line


def print_json(report: Any) -> None:
    """Print a report, a dataclass or a mapping, as a JSON object."""
    value = asdict(report) if is_dataclass(report) and not isinstance(report, type) else report
    click.echo(json.dumps(value, indent=2, default=str))
