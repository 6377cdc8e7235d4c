"""``kreplica pipeline replay``: write the records of Parquet files to topics; ``spark-submit`` can run the module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    open_spark,
    parse_options,
    parse_spark_options,
    print_json,
    show_progress,
    spark_options,
)
from kreplica.cli.records.data_access import bootstrap_option, client_config_option, codec_option
from kreplica.cli.records.data_progress import records_text
from kreplica.cli.terminal.parameter_types import ParameterType, Size, Time
from kreplica.cli.terminal.screen import Screen, bytes_text, seconds_text
from kreplica.cli.transfer.topic_options import by_key_option, creation_options
from kreplica.model import TopicPartition
from kreplica.transfer.topics import TopicCreation
from kreplica.wire.compression import Codec

if TYPE_CHECKING:
    from kreplica.spark.pipelines.replay.plan import Plan, Target
    from kreplica.spark.pipelines.replay.replay import ReplayReport


class Position(ParameterType):
    """A time, converted to milliseconds since 1970, or offsets as JSON, converted to a mapping."""

    name = "TIME|OFFSETS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not value.lstrip().startswith("{"):
            return value if isinstance(value, Mapping) else Time().convert(value, param, ctx)
        from kreplica.spark.source.positions import parse_numbers

        try:
            return parse_numbers(value, str(param and param.opts[0]))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Rename(ParameterType):
    """``TOPIC=OTHER``, or ``OTHER`` if there is only one topic; converted to a pair."""

    name = "[TOPIC=]OTHER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        topic, _, new_name = value.partition("=") if "=" in value else ("", "", value)
        if not new_name or ("=" in value and not topic):
            self.fail(f"{value!r}: expected TOPIC=OTHER", param, ctx)
        return topic, new_name


@click.command
@click.argument("path")
@bootstrap_option(purpose="Bootstrap brokers of the target cluster.")
@click.option("--topics", metavar="TOPIC,...", help="Only these topics.  [default: all]")
@click.option("--as", "renamed", multiple=True, type=Rename(), help="Rename a topic; may be repeated.")
@click.option(
    "--from", "begin", type=Position(), help='Start position: a time, or offsets such as {"orders": {"0": 23}}.'
)
@click.option("--to", "end", type=Position(), help="End position: a time, or offsets (exclusive).")
@creation_options(help_text="Create missing topics, with as many partitions as the records need.")
@by_key_option
@click.option(
    "--name", help="Name under which the target cluster stores the progress.  [default: derived from the options]"
)
@click.option(
    "--step-records", type=click.IntRange(min=1), help="Approximate number of records per step.  [default: 1000000]"
)
@click.option("--step-size", type=Size(), help="Approximate size of the files per step.  [default: 256MiB]")
@click.option("--option", "options", multiple=True, metavar="kafka.NAME=VALUE", help="A sink option; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@codec_option
@client_config_option()
@spark_options
def command(
    path: str,
    topics: str | None,
    renamed: tuple[tuple[str, str], ...],
    options: tuple[str, ...],
    dry_run: bool,
    codec: Codec,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    **option_values: Any,
) -> None:
    """Write the records of an archive, or of other Parquet files, to topics: each once, in order, with its timestamp.

    PATH is an archive that `kreplica pipeline archive` wrote, or a directory of Parquet files.  The files must have the
    column value; the columns key, topic, partition, offset, timestamp and headers are used if they exist.  The same
    command resumes after an interruption.

    \b
    kreplica pipeline replay /data/archive --create
    kreplica pipeline replay /data/archive --topics orders --as orders=orders-2027 --from 2027-01-01
    """
    spark_settings = parse_spark_options(master, conf)
    sink_options = {"kafka.compression.type": codec.name.lower(), **parse_options(options)}
    with open_spark("kreplica pipeline replay", spark_settings) as spark:
        from kreplica.spark.pipelines.replay.replay import plan_replay, replay

        pipeline_options = _replay_options(topics, dict(renamed), sink_options, **option_values)
        if dry_run:
            plan = plan_replay(spark, path, pipeline_options)
            print_json(_plan_json(plan)) if as_json else _print_plan(plan)
            return
        with show_progress() as report:
            result = replay(spark, path, pipeline_options, report)
    print_json(result) if as_json else _print_report(result)


def _replay_options(
    topics: str | None,
    renamed: Mapping[str, str],
    options: Mapping[str, str],
    *,
    bootstrap: str,
    begin: int | Mapping[TopicPartition, int] | None,
    end: int | Mapping[TopicPartition, int] | None,
    step_records: int | None,
    step_size: int | None,
    creation: TopicCreation,
    **others: Any,
) -> Any:
    from kreplica.spark.pipelines.replay.plan import STEP_BYTES, STEP_RECORDS, ReplayOptions

    return ReplayOptions(
        bootstrap=bootstrap,
        topics=comma_separated(topics),
        renamed=renamed,
        starts=begin if isinstance(begin, Mapping) else {},
        ends=end if isinstance(end, Mapping) else {},
        from_ms=begin if isinstance(begin, int) else None,
        to_ms=end if isinstance(end, int) else None,
        step_records=step_records or STEP_RECORDS,
        step_bytes=step_size or STEP_BYTES,
        options=options,
        create=creation.create,
        replication_factor=creation.replication_factor,
        configs=creation.configs,
        **others,
    )


def _print_targets(screen: Screen, targets: tuple[Target, ...]) -> None:
    rows = [
        (each.topic or "(all rows)", each.target, each.partitions or "to be created", each.partitions_needed or None,
         each.records) for each in targets
    ]  # fmt: skip
    columns = ("topic", "target", "partitions", "needed", "existing offsets")
    screen.table(columns, rows, empty_text="There are no records.")


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "targets": [each._asdict() for each in plan.targets],
        "offsets": plan.offsets,
        "offsets_done": plan.offsets_done,
        "steps": [
            {"number": each.position, "ranges": [[*span.partition, span.start, span.end] for span in each.ranges]}
            for each in plan.steps
        ],
        "notes": plan.notes,
    }


def _print_plan(plan: Plan) -> None:
    screen = Screen()
    _print_targets(screen, plan.targets)
    for note in plan.notes:
        screen.line(note)
    remaining = plan.offsets - plan.offsets_done
    result = f"; {plan.offsets_done:,} of {plan.offsets:,} were already replayed" if plan.offsets_done else ""
    screen.line(f"{plan.name}: {remaining:,} offsets in {len(plan.steps):,} steps{result}")


def _print_report(report: ReplayReport) -> None:
    screen = Screen()
    _print_targets(screen, report.targets)
    for note in report.notes:
        screen.line(note)
    size, took = bytes_text(report.value_bytes), seconds_text(report.seconds)
    rate = report.records / max(report.seconds, 1e-3)
    screen.line(
        f"{report.name}: {records_text(report.records)}, {size}, in {report.steps:,} steps and {took} "
        f"({rate:,.0f} records/s); {report.offsets:,} offsets replayed in total"
    )


if __name__ == "__main__":
    command()
