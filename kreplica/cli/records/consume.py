"""``kreplica consume``: print records as lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click
from click.core import ParameterSource

from kreplica.blocking import Isolation, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets
from kreplica.blocking.reader import ReadRecord
from kreplica.cli.records.data_access import bootstrap_option, client_config_option, open_cluster, report_failures
from kreplica.cli.records.data_progress import records_text
from kreplica.cli.records.formats import BUILT_IN, RegistryAccess, registry_options
from kreplica.cli.records.output import OutputOptions, RecordOutput
from kreplica.cli.records.positions import PartitionsType, Start, StartType, select_partitions, start_offsets
from kreplica.cli.records.record_columns import Columns
from kreplica.cli.records.record_format import RecordFormatter, compile_template
from kreplica.cli.terminal.screen import escape_controls
from kreplica.client_core.fetched_batches import ReadBatch
from kreplica.transfer.topics import existing_topic

DEFAULT_TEMPLATE = "{value}\\n"
NEWEST_MAX = 10_000


def _parse_template(_: click.Context, __: click.Parameter, text: str) -> RecordFormatter:
    try:
        return compile_template(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _parse_columns(_: click.Context, __: click.Parameter, text: str | None) -> Columns | None:
    try:
        return None if text is None else Columns(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command
@click.argument("topic")
@bootstrap_option()
@client_config_option()
@click.option("--from", "start", type=StartType(), default="earliest", show_default=True,
              help="Start position: earliest, latest, an offset, -N for the last N offsets of each partition, "
              "or a time (2027-01-31T08:30, timestamp:MS).")  # fmt: skip
@click.option("--newest", type=click.IntRange(1, NEWEST_MAX), help="Start with the newest N records across all "
              "partitions, in chronological order.")  # fmt: skip
@click.option("--partitions", type=PartitionsType(), help="Only these partitions.")
@click.option("--count", "count_max", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--follow/--until-end", default=None,
              help="Wait for new records, or stop at the current log end.  [default: --until-end; with "
              "--from latest: --follow]")  # fmt: skip
@click.option("--format", "print_record", default=DEFAULT_TEMPLATE, show_default=True, callback=_parse_template,
              metavar="TEMPLATE", help="Output template, with the fields {topic} {partition} {offset} {time} "
              "{timestamp_ms} {timestamp_type} {key} {value} {headers} {key_size} {value_size}.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, readable by produce --json.")
@click.option("--columns", callback=_parse_columns, metavar="NAME,...",
              help="Print these columns, separated by tabs, after a header line: partition, offset, time, "
              "key, value, headers, size, and fields such as value.customer.name.")  # fmt: skip
@click.option("--key-format", metavar="FORMAT", help=f"Decode keys: auto, raw, {', '.join(BUILT_IN)}.  [default: auto "
              "on a terminal and with --columns, otherwise raw]")  # fmt: skip
@click.option("--value-format", metavar="FORMAT", help="Decode values, like --key-format.")
@click.option("--filter", "record_filter", metavar="EXPRESSION", help="Only records for which this CEL expression is "
              "true, such as value.total > 100.  Variables: key, value (decoded), headers, timestamp (milliseconds "
              "since 1970), timestamp_type, offset, partition.")  # fmt: skip
@registry_options
@click.option("--read-committed", is_flag=True, help="Skip records of aborted transactions, and read only up to the "
              "first open transaction.")
def command(
    topic: str,
    bootstrap: str,
    start: Start,
    newest: int | None,
    partitions: list[int] | None,
    count_max: int | None,
    follow: bool | None,
    print_record: RecordFormatter,
    as_json: bool,
    columns: Columns | None,
    key_format: str | None,
    value_format: str | None,
    record_filter: str | None,
    registry: RegistryAccess,
    read_committed: bool,
) -> None:
    """Print the records of a topic.

    The records of each partition are printed in order; partitions are read in parallel.  The command does not join a
    group and does not commit offsets.  A null key or value is printed as null.  On a terminal, keys and values are
    decoded and control characters are escaped.

    \b
    kreplica consume orders
    kreplica consume orders --from latest --format '{time} {key}: {value}\\n'
    kreplica consume orders --from -10 --partitions 0 --json
    kreplica consume orders --newest 20 --columns time,key,value.total --filter 'value.total > 100'
    """
    if as_json and columns is not None:
        raise click.UsageError("--json and --columns cannot be combined")
    source = click.get_current_context().get_parameter_source("start")
    if newest is not None and source is not ParameterSource.DEFAULT:
        raise click.UsageError("--newest and --from cannot be combined")
    isolation = Isolation.READ_COMMITTED if read_committed else Isolation.READ_UNCOMMITTED
    output = RecordOutput(
        OutputOptions(print_record, as_json, columns, key_format, value_format, record_filter, registry), topic
    )
    printer = _Printer(output, count_max)
    with open_cluster(bootstrap) as cluster, report_failures(printer.state):
        view = existing_topic(cluster, topic)
        selected = select_partitions(topic, [each.partition for each in view.partitions], partitions)
        follows = start.kind == "latest" if follow is None else follow
        options = ReaderOptions(isolation=isolation)
        if newest is not None:
            ends = end_offsets(cluster, selected, isolation)
            starts = start_offsets(cluster, selected, Start("last", newest), isolation)
            with Reader(cluster, starts, ends=ends, options=options) as reader:
                printer.add(_newest(reader, newest))
            starts = ends
        else:
            starts = start_offsets(cluster, selected, start, isolation)
        if newest is None or follows:
            until = None if follows else end_offsets(cluster, selected, isolation)
            with Reader(cluster, starts, ends=until, options=options) as reader:
                _print_all(reader, printer)
    if output.filter_errors:
        count = records_text(output.filter_errors)
        click.echo(f"kreplica: the filter failed for {count}: {escape_controls(str(output.filter_error))}", err=True)


class _Printer:
    """Prints records to standard output, up to a maximum number."""

    def __init__(self, output: RecordOutput, count_max: int | None) -> None:
        self._output = output
        self._count_max = count_max
        self._has_header = False
        self.count = 0

    @property
    def is_done(self) -> bool:
        return self._count_max is not None and self.count >= self._count_max

    def state(self) -> str:
        """Describe the work done so far."""
        skipped = f", {records_text(self._output.skipped)} skipped by the filter" if self._output.skipped else ""
        return f"{records_text(self.count)} read{skipped}"

    def add(self, records: Iterable[ReadRecord]) -> None:
        lines = []
        if not self._has_header:
            self._has_header = True
            header = self._output.header()
            if header is not None:
                lines.append(header)
        for record in records:
            if self.is_done:
                break
            line = self._output.line(record)
            if line is not None:
                # Counted before they are printed, so that after Ctrl-C the count includes every record on the screen.
                self.count += 1
                lines.append(line)
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()


def _print_all(reader: Reader, printer: _Printer) -> None:
    while not (reader.is_done or printer.is_done):
        for batch in reader.read():
            printer.add(_records(batch))
            if printer.is_done:
                return


def _records(batch: ReadBatch) -> Iterator[ReadRecord]:
    (topic, partition), timestamp_type, records, _ = batch
    for offset, timestamp_ms, key, value, headers in records:
        yield ReadRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers)


def _newest(reader: Reader, count: int) -> list[ReadRecord]:
    """Return the newest records before the reader's end offsets, oldest first."""
    found: list[ReadRecord] = []
    while not reader.is_done:
        for batch in reader.read():
            found += _records(batch)
        found = sorted(found, key=_order)[-count:]
    return found


def _order(record: ReadRecord) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset
