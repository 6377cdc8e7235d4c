"""What all pipelines have: options for Spark, a session that ends with the command, progress, a report as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from kreplica.cli.http.session import Failed
from kreplica.cli.records.data_progress import UPDATE_S_MIN, records_text
from kreplica.cli.terminal.screen import bytes_text
from kreplica.errors import KreplicaError
from kreplica.spark.pipelines.progress import Progress, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])

LINE_EVERY_S = 10.0
"""So often, where nobody sees a bar, a line says how far it is."""

NEEDED = ("pyspark", "pyarrow", "numpy")


class SparkChoice(NamedTuple):
    """What the user said of Spark.

    :param master: None: ``spark-submit``'s, else this machine.
    """

    master: str | None
    settings: Mapping[str, str]


def spark_options(function: F) -> F:
    """``--master``, ``--conf`` and ``--json``; the function is given ``master``, ``conf`` and ``as_json``."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object."),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated."),
        click.option("--master", metavar="URL", help="Spark master URL.  [default: this machine]"),
    ):
        function = decorate(function)
    return function


def kafka_options(texts: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE`` of ``--option``, as the source and the sink take them.

    :raise click.BadParameter: one is malformed.
    """
    return pairs(texts, "--option")


def spark_choice(master: str | None, conf: tuple[str, ...]) -> SparkChoice:
    """What ``spark_options`` gave.

    :raise click.BadParameter: a setting is malformed.
    """
    return SparkChoice(master, pairs(conf, "--conf"))


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """``NAME=VALUE`` of an option that may be there more than once.

    :raise click.BadParameter: one is malformed.
    """
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        found[name.strip()] = value.strip()
    return found


@contextmanager
def spark_for(name: str, choice: SparkChoice) -> Iterator[SparkSession]:
    """A session that ends with the block, and what goes wrong in it as one line for people.

    :raise Failed: Spark is not installed or has no Java, or what is done in the block fails as it may.
    """
    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        raise Failed(f"{', '.join(missing)} is not installed: pip install 'kreplica[spark]'")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kreplica.spark.session import spark_session

    quiet = {"spark.ui.showConsoleProgress": "false", **choice.settings}
    try:
        session = spark_session(name, master=choice.master, settings=quiet)
        session.sparkContext.setLogLevel("FATAL")
    except (PySparkException, KreplicaError) as error:
        raise Failed(str(error)) from error
    except Py4JError as error:
        where = f" at {choice.master}" if choice.master else ""
        raise Failed(f"Spark{where} gave no session, as its log says above: {java_cause(error)}") from error
    try:
        yield session
    except (KreplicaError, ValueError, OSError) as error:
        raise Failed(str(error)) from error
    except (PySparkException, Py4JError) as error:
        raise Failed(cause_of(error)) from error
    finally:
        session.stop()


def java_cause(error: Exception) -> str:
    """The first exception of Java that an error tells of."""
    lines = [line.strip(": ") for line in str(error).splitlines()]
    return next((line for line in lines if "Exception" in line or "Error:" in line), lines[0] if lines else "")


def cause_of(error: Exception) -> str:
    """What our own code said, out of what Spark wraps around it; all of it where that is not to be found."""
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
                return f"{text} on the Spark executors: install it there, or send it (docs/how-to/spark.md)"
    return "\n".join(lines[:20]) or type(error).__name__


@contextmanager
def progress_shown() -> Iterator[Report]:
    """A bar on a terminal; elsewhere a line now and then on standard error."""
    console = Console(stderr=True)
    began_s = shown_s = monotonic()

    def told(progress: Progress) -> str:
        seconds = max(monotonic() - began_s, 1e-3)
        if progress.size_bytes and not progress.records:
            return f"{bytes_text(progress.size_bytes)}, {progress.size_bytes / seconds / 1e6:,.0f} MB/s"
        size = f", {bytes_text(progress.size_bytes)}" if progress.size_bytes else ""
        return f"{records_text(progress.records)}{size}, {progress.records / seconds:,.0f} records/s"

    if not console.is_terminal:

        def line(progress: Progress) -> None:
            nonlocal shown_s
            if monotonic() - shown_s >= LINE_EVERY_S:
                shown_s = monotonic()
                share = f" {100 * progress.done / progress.total:.0f} %" if progress.total else ""
                click.echo(f"{progress.what}{share}: {told(progress)}", err=True)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.fields[told]}"), console=console, transient=True) as bar:
        task = bar.add_task("", total=None, told="")

        def move(progress: Progress) -> None:
            nonlocal shown_s
            if monotonic() - shown_s >= UPDATE_S_MIN:
                shown_s = monotonic()
                bar.update(task, description=progress.what, completed=progress.done, total=progress.total)
                bar.update(task, told=told(progress))

        yield move


def print_json(report: Any) -> None:
    """A report, which is a dataclass or a mapping, as one object."""
    value = asdict(report) if is_dataclass(report) and not isinstance(report, type) else report
    click.echo(json.dumps(value, indent=2, default=str))
