"""``kreplica topic export``: write a topic's records to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kreplica.blocking import Isolation, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets
from kreplica.blocking.reader import ReadRecord
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.data_access import bootstrap_option, client_config_option, open_cluster, report_failures
from kreplica.cli.records.data_progress import CopyProgress
from kreplica.cli.records.positions import PartitionsType, Start, StartType, select_partitions, start_offsets
from kreplica.cli.records.record_json import record_line
from kreplica.cli.transfer.archive_files import PARQUET_SUFFIX, file_format, line_sink, new_file
from kreplica.cli.transfer.archive_parquet import ParquetSink
from kreplica.cli.transfer.topic_options import read_uncommitted_option
from kreplica.transfer.offset_ranges import offset_count
from kreplica.transfer.topics import existing_topic


@click.command
@click.argument("topic")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@bootstrap_option()
@client_config_option()
@click.option("--from", "start", type=StartType(), default="earliest", show_default=True,
              help="Start position: earliest, an offset, -N for the last N offsets of each partition, or a "
              "time.")  # fmt: skip
@click.option("--partitions", type=PartitionsType(), help="Only these partitions.")
@read_uncommitted_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(
    topic: str,
    file: Path,
    bootstrap: str,
    start: Start,
    partitions: list[int] | None,
    read_uncommitted: bool,
    force: bool,
) -> None:
    """Write the current records of a topic to FILE, whose suffix is .jsonl, .jsonl.gz, .jsonl.zst or .parquet.

    Key, value, headers, timestamp, partition, offset and the order within each partition are preserved.  Records
    written after the export started are not exported.  FILE is created only when it is complete.

    \b
    kreplica topic export orders orders.jsonl.zst
    kreplica topic export orders orders.parquet --from 2027-01-31
    """
    suffix = file_format(file)
    if file.exists() and not force:
        raise CommandFailed(f"{file} already exists: --force overwrites it")
    isolation = Isolation.READ_UNCOMMITTED if read_uncommitted else Isolation.READ_COMMITTED
    with open_cluster(bootstrap) as cluster, report_failures(lambda: f"{file} was not written"):
        view = existing_topic(cluster, topic)
        selected = select_partitions(topic, [each.partition for each in view.partitions], partitions)
        starts = start_offsets(cluster, selected, start, isolation)
        ends = end_offsets(cluster, selected, isolation)
        progress = CopyProgress(f"export {topic}", offset_count(starts, ends))
        options = ReaderOptions(isolation=isolation)
        with (
            new_file(file) as partial,
            _sink(partial, suffix) as write,
            progress,
            Reader(cluster, starts, ends=ends, options=options) as reader,
        ):
            _export(reader, write, progress, sum(starts.values()))
    click.echo(f"{file}: {progress.summary}")


@contextmanager
def _sink(path: Path, suffix: str) -> Iterator[Callable[[ReadRecord], object]]:
    if suffix == PARQUET_SUFFIX:
        parquet = ParquetSink(path)
        try:
            yield parquet.write
        finally:
            parquet.close()
        return
    lines = line_sink(path, suffix)
    try:
        yield lambda record: lines.write(record_line(record) + b"\n")
    finally:
        lines.close()


def _export(reader: Reader, write: Callable[[ReadRecord], object], progress: CopyProgress, start: int) -> None:
    for (topic, partition), timestamp_type, records, _ in reader.batches():
        size = 0
        for offset, timestamp_ms, key, value, headers in records:
            write(ReadRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers))
            size += len(key or b"") + len(value or b"")
        progress.add(len(records), size, sum(reader.positions.values()) - start)
