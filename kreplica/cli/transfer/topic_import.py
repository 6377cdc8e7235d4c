"""``kreplica topic import``: write records from a file to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kreplica.blocking import Codec, Producer, ProducerOptions
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.data_access import (
    bootstrap_option,
    client_config_option,
    codec_option,
    open_cluster,
    report_failures,
)
from kreplica.cli.records.data_progress import CopyProgress, records_text
from kreplica.cli.records.record_json import BadRecord, InputRecord, parse_line
from kreplica.cli.transfer.archive_files import PARQUET_SUFFIX, file_format, read_lines
from kreplica.cli.transfer.archive_parquet import read_parquet, row_count
from kreplica.cli.transfer.topic_options import by_key_option, creation_options
from kreplica.transfer.topics import ADD_PARTITIONS, TopicCreation, find_or_create


@click.command
@click.argument("topic")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@bootstrap_option()
@client_config_option()
@creation_options(source="the exported topic")
@by_key_option
@codec_option
def command(
    topic: str,
    file: Path,
    bootstrap: str,
    creation: TopicCreation,
    by_key: bool,
    codec: Codec,
) -> None:
    """Write the records of FILE to a topic; FILE has one of the formats of `kreplica topic export`.

    Partition, timestamp, key, value and headers of each record, and the order within each partition, are preserved;
    offsets are new.  If a record cannot be written, the command reports it and exits; earlier records remain in the
    topic.

    \b
    kreplica topic import orders-again orders.jsonl.zst --create
    kreplica topic import orders orders.parquet --by-key
    """
    suffix = file_format(file)
    progress = CopyProgress(f"import {topic}", row_count(file) if suffix == PARQUET_SUFFIX else file.stat().st_size)
    with open_cluster(bootstrap) as cluster:
        producer = Producer(cluster, ProducerOptions(codec=codec))
        with report_failures(lambda: f"{records_text(producer.written)} written"), producer:
            needed = _partition_count(file, suffix) if creation.create and not (creation.partitions or by_key) else None
            view = find_or_create(cluster, topic, creation, needed)
            with progress:
                _import(file, suffix, producer, progress, topic, len(view.partitions), by_key=by_key)
                producer.flush()
    click.echo(f"{topic}: {progress.summary}")


def _records(file: Path, suffix: str, progress: CopyProgress | None) -> Iterator[tuple[str, InputRecord]]:
    """Yield (location, record) for each record of a file; the location is for error messages."""

    def on_read(done: int) -> None:
        if progress is not None:
            progress.add(0, 0, done)

    if suffix == PARQUET_SUFFIX:
        for number, record in enumerate(read_parquet(file, on_read), 1):
            yield f"{file}, row {number}", record
        return
    for number, line in enumerate(read_lines(file, suffix, on_read), 1):
        try:
            yield f"{file}, line {number}", parse_line(line)
        except BadRecord as error:
            raise CommandFailed(f"{file}, line {number}: {error}") from None


def _partition_count(file: Path, suffix: str) -> int:
    """Return the number of partitions that the records of a file need; 0 if no record has a partition."""
    numbers = (record.partition for _, record in _records(file, suffix, None))
    return max((-1 if number is None else number for number in numbers), default=-1) + 1


def _import(
    file: Path, suffix: str, producer: Producer, progress: CopyProgress, topic: str, partitions: int, *, by_key: bool
) -> None:
    for location, (key, value, headers, partition, timestamp_ms) in _records(file, suffix, progress):
        if partition is not None and partition >= partitions and not by_key:
            producer.flush()
            raise CommandFailed(
                f"{location}: the record has partition {partition}, but {topic} has {partitions} partitions"
                f" ({records_text(producer.written)} written): {ADD_PARTITIONS}"
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
