"""``kreplica consume``: print records as lines."""

from __future__ import annotations

import sys

import click

from kreplica.blocking import Isolation, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets
from kreplica.blocking.reader import ReadRecord
from kreplica.cli.records.data_access import bootstrap_option, client_config_option, open_cluster, report_failures
from kreplica.cli.records.data_progress import records_text
from kreplica.cli.records.positions import PartitionsType, Start, StartType, select_partitions, start_offsets
from kreplica.cli.records.record_format import RecordFormatter, compile_template, for_terminal
from kreplica.cli.records.record_json import record_line
from kreplica.transfer.topics import existing_topic

DEFAULT_TEMPLATE = "{value}\\n"


def _parse_template(_: click.Context, __: click.Parameter, text: str) -> RecordFormatter:
    try:
        return compile_template(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command
@click.argument("topic")
@bootstrap_option()
@client_config_option()
@click.option("--from", "start", type=StartType(), default="earliest", show_default=True,
              help="Start position: earliest, latest, an offset, -N for the last N offsets of each partition, "
              "or a time (2027-01-31T08:30, timestamp:MS).")  # fmt: skip
@click.option("--partitions", type=PartitionsType(), help="Only these partitions.")
@click.option("--count", "count_max", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--follow/--until-end", default=None,
              help="Wait for new records, or stop at the current log end.  [default: --until-end; with "
              "--from latest: --follow]")  # fmt: skip
@click.option("--format", "print_record", default=DEFAULT_TEMPLATE, show_default=True, callback=_parse_template,
              metavar="TEMPLATE", help="Template of a record: {topic} {partition} {offset} {time} {timestamp_ms} "
              "{timestamp_type} {key} {value} {headers} {key_size} {value_size}.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, readable by produce --json.")
@click.option("--read-committed", is_flag=True, help="Skip records of aborted transactions, and read only up to the "
              "first open transaction.")
def command(
    topic: str,
    bootstrap: str,
    start: Start,
    partitions: list[int] | None,
    count_max: int | None,
    follow: bool | None,
    print_record: RecordFormatter,
    as_json: bool,
    read_committed: bool,
) -> None:
    """Print the records of a topic.

    The records of each partition are printed in order; partitions are read in parallel.  The command does not join a
    group and commits no offsets.  A null key or value is printed as null.  On a terminal, control characters are
    escaped.

    \b
    kreplica consume orders
    kreplica consume orders --from latest --format '{time} {key}: {value}\\n'
    kreplica consume orders --from -10 --partitions 0 --json
    """
    isolation = Isolation.READ_COMMITTED if read_committed else Isolation.READ_UNCOMMITTED
    if as_json:
        print_record = _json_line
    elif sys.stdout.isatty():
        print_record = for_terminal(print_record)
    printer = _Printer(print_record, count_max)
    with open_cluster(bootstrap) as cluster, report_failures(lambda: f"{records_text(printer.count)} read"):
        view = existing_topic(cluster, topic)
        selected = select_partitions(topic, [each.partition for each in view.partitions], partitions)
        follows = start.kind == "latest" if follow is None else follow
        starts = start_offsets(cluster, selected, start, isolation)
        ends = None if follows else end_offsets(cluster, selected, isolation)
        options = ReaderOptions(isolation=isolation)
        with Reader(cluster, starts, ends=ends, options=options) as reader:
            _print_all(reader, printer)


def _json_line(record: ReadRecord) -> bytes:
    return record_line(record) + b"\n"


class _Printer:
    """Prints records to standard output, up to a maximum number."""

    def __init__(self, print_record: RecordFormatter, count_max: int | None) -> None:
        self._print = print_record
        self._count_max = count_max
        self.count = 0

    @property
    def is_done(self) -> bool:
        return self._count_max is not None and self.count >= self._count_max

    def add(self, records: list[ReadRecord]) -> None:
        printed = records if self._count_max is None else records[: self._count_max - self.count]
        lines = b"".join([self._print(record) for record in printed])
        # Counted before they are printed, so that after Ctrl-C the count includes every record on the screen.
        self.count += len(printed)
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()


def _print_all(reader: Reader, printer: _Printer) -> None:
    while not (reader.is_done or printer.is_done):
        for (topic, partition), timestamp_type, records, _ in reader.read():
            printer.add(
                [
                    ReadRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers)
                    for offset, timestamp_ms, key, value, headers in records
                ]
            )
            if printer.is_done:
                return
