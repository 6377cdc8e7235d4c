"""``kreplica topic import``: records from a file to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kreplica.blocking import Codec, Producer, ProducerOptions
from kreplica.cli.http.session import Failed
from kreplica.cli.records.data_access import accounted, bootstrap_option, codec_option, open_cluster
from kreplica.cli.records.data_progress import CopyProgress, records_text
from kreplica.cli.records.record_json import BadRecord, GivenRecord, parse_line
from kreplica.cli.transfer.archive_files import PARQUET, kind_of, read_lines
from kreplica.cli.transfer.archive_parquet import read_parquet, row_count
from kreplica.cli.transfer.topic_creation import Making, find_or_make, making_options


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("topic")
@bootstrap_option()
@making_options
@click.option("--by-key", is_flag=True, help="Choose partitions by key instead of keeping them.")
@codec_option
def command(
    file: Path,
    topic: str,
    bootstrap: str,
    making: Making,
    by_key: bool,
    codec: Codec,
) -> None:
    """Write the records of FILE, as export makes it, to a topic.

    Partitions, times, keys, values and headers are kept, and the order within each partition; offsets are new.  It ends
    at the first record that cannot be written, and says which; what was written until then stays.

    \b
    kreplica topic import orders.jsonl.zst orders-again --create
    kreplica topic import orders.parquet orders --by-key
    """
    kind = kind_of(file)
    progress = CopyProgress(f"import {topic}", row_count(file) if kind == PARQUET else file.stat().st_size)
    with open_cluster(bootstrap) as cluster:
        producer = Producer(cluster, ProducerOptions(codec=codec))
        with accounted(lambda: f"{records_text(producer.written)} written"), producer:
            needed = _partitions_in(file, kind) if making.create and not (making.partitions or by_key) else None
            view = find_or_make(cluster, topic, making, needed)
            with progress:
                _import(file, kind, producer, progress, topic, len(view.partitions), by_key=by_key)
                producer.flush()
    click.echo(f"{topic}: {progress.summary}")


def _records(file: Path, kind: str, progress: CopyProgress | None) -> Iterator[tuple[str, GivenRecord]]:
    """(where, record) of each record of a file; ``where`` is for errors."""

    def passed(done: int) -> None:
        if progress is not None:
            progress.add(0, 0, done)

    if kind == PARQUET:
        for number, record in enumerate(read_parquet(file, passed), 1):
            yield f"{file}, row {number}", record
        return
    for number, line in enumerate(read_lines(file, kind, passed), 1):
        try:
            yield f"{file}, line {number}", parse_line(line)
        except BadRecord as error:
            raise Failed(f"{file}, line {number}: {error}") from None


def _partitions_in(file: Path, kind: str) -> int:
    """As many partitions as the records of a file need; 0 where none names one."""
    numbers = (record.partition for _, record in _records(file, kind, None))
    return max((-1 if number is None else number for number in numbers), default=-1) + 1


def _import(
    file: Path, kind: str, producer: Producer, progress: CopyProgress, topic: str, partitions: int, *, by_key: bool
) -> None:
    for where, (key, value, headers, partition, timestamp_ms) in _records(file, kind, progress):
        if partition is not None and partition >= partitions and not by_key:
            producer.flush()
            raise Failed(
                f"{where}: partition {partition}, and {topic} has {partitions}"
                f" ({records_text(producer.written)} written): let the topic grow, or use --by-key"
            )
        producer.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=None if by_key else partition,
            timestamp_ms=timestamp_ms,
        )
        progress.records += 1
        progress.size_bytes += len(key or b"") + len(value or b"")
