"""``kreplica pipeline replay``: write the records of Parquet files to topics; ``spark-submit`` can run the module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.pipelines.pipeline_session import (
    comma_separated,
    kafka_options,
    print_json,
    progress_shown,
    spark_choice,
    spark_for,
    spark_options,
)
from kreplica.cli.records.data_access import bootstrap_option, codec_option
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
    """``TOPIC=OTHER``, or ``OTHER`` for the only topic; converted to a pair."""

    name = "[TOPIC=]OTHER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        topic, _, other = value.partition("=") if "=" in value else ("", "", value)
        if not other or ("=" in value and not topic):
            self.fail(f"{value!r}: expected TOPIC=OTHER", param, ctx)
        return topic, other


@click.command
@click.argument("path")
@bootstrap_option(purpose="Bootstrap brokers of the target cluster.")
@click.option("--topics", metavar="TOPIC,...", help="Only these topics.  [default: all]")
@click.option("--as", "renamed", multiple=True, type=Rename(), help="Rename a topic; may be repeated.")
@click.option(
    "--from", "begin", type=Position(), help='Start position: a time, or offsets such as {"orders": {"0": 23}}.'
)
@click.option("--to", "end", type=Position(), help="End position: a time, or offsets (exclusive).")
@creation_options(
    help_text="Create missing topics with as many partitions as the records need.", with_partition_count=False
)
@by_key_option
@click.option("--name", help="Name of this replay in the target cluster.  [default: derived from the options]")
@click.option(
    "--step-records", type=click.IntRange(min=1), help="Approximate number of records per step.  [default: 1000000]"
)
@click.option("--step-size", type=Size(), help="Approximate size of the files per step.  [default: 256MiB]")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="A sink option: kafka.NAME=VALUE.")
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@codec_option
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
    **chosen: Any,
) -> None:
    """Write the records of an archive, or of other Parquet files, to topics: each once, in order, with its timestamp.

    PATH is an archive of kreplica pipeline archive, or a directory of Parquet files with a column value and optionally
    key, topic, partition, offset, timestamp and headers.  Run the same command again to resume where the last run
    stopped.

    \b
    kreplica pipeline replay /data/archive --create
    kreplica pipeline replay /data/archive --topics orders --as orders=orders-2027 --from 2027-01-01
    """
    choice = spark_choice(master, conf)
    sink_options = {"kafka.compression.type": codec.name.lower(), **kafka_options(options)}
    with spark_for("kreplica replay", choice) as spark:
        from kreplica.spark.pipelines.replay.replay import plan_replay, replay

        wanted = _wanted(topics, dict(renamed), sink_options, **chosen)
        if dry_run:
            plan = plan_replay(spark, path, wanted)
            print_json(_plan_rows(plan)) if as_json else _show_plan(plan)
            return
        with progress_shown() as report:
            done = replay(spark, path, wanted, report)
    print_json(done) if as_json else _show(done)


def _wanted(
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
    from kreplica.spark.pipelines.replay.plan import STEP_BYTES, STEP_RECORDS, Wanted

    return Wanted(
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


def _show_targets(screen: Screen, targets: tuple[Target, ...]) -> None:
    rows = [
        (each.topic or "(all rows)", each.target, each.partitions or "to be created", each.partitions_needed or None,
         each.records) for each in targets
    ]  # fmt: skip
    columns = ("topic", "target", "partitions", "needed", "offsets before")
    screen.table(columns, rows, nothing="There are no records.")


def _plan_rows(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "targets": [each._asdict() for each in plan.targets],
        "offsets": plan.offsets,
        "offsets_done": plan.offsets_done,
        "steps": [
            {"number": each.position, "ranges": [[*of.partition, of.start, of.end] for of in each.ranges]}
            for each in plan.steps
        ],
        "notes": plan.notes,
    }


def _show_plan(plan: Plan) -> None:
    screen = Screen()
    _show_targets(screen, plan.targets)
    for note in plan.notes:
        screen.line(note)
    left = plan.offsets - plan.offsets_done
    done = f"; {plan.offsets_done:,} of {plan.offsets:,} are already replayed" if plan.offsets_done else ""
    screen.line(f"{plan.name}: {left:,} offsets in {len(plan.steps):,} steps{done}")


def _show(report: ReplayReport) -> None:
    screen = Screen()
    _show_targets(screen, report.targets)
    for note in report.notes:
        screen.line(note)
    size, took = bytes_text(report.value_bytes), seconds_text(report.seconds)
    rate = report.records / max(report.seconds, 1e-3)
    screen.line(
        f"{report.name}: {records_text(report.records)}, {size}, in {report.steps:,} steps and {took} "
        f"({rate:,.0f} records/s); {report.offsets:,} offsets replayed in all"
    )


if __name__ == "__main__":
    command()
