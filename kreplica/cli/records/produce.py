"""``kreplica produce``: write lines as records."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.data_access import (
    bootstrap_option,
    client_config_option,
    codec_option,
    open_cluster,
    report_failures,
)
from kreplica.cli.records.data_progress import records_text
from kreplica.cli.records.encoding import ENCODABLE, PartEncoder, PartFormat
from kreplica.cli.records.formats import RegistryAccess, registry_options
from kreplica.cli.records.line_input import LineTooLong, read_files
from kreplica.cli.records.record_json import BadRecord, InputRecord, parse_line
from kreplica.cli.terminal.parameter_types import Setting
from kreplica.transfer.topics import TopicUnusable, existing_topic
from kreplica.wire.records import Headers

ACKS = {"all": -1, "1": 1, "0": 0}
IDLE_S = 0.02


@click.command
@click.argument("topic")
@bootstrap_option()
@client_config_option()
@click.option("--file", "files", multiple=True,
              type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              help="Input file; - (the default) is standard input.")  # fmt: skip
@click.option(
    "--key-separator", metavar="TEXT", help="Separator between key and value; without it, records have no key."
)
@click.option("--json", "as_json", is_flag=True,
              help="Each line is a JSON object: key, value, headers, partition, timestamp_ms.")  # fmt: skip
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Partition for all records.  [default: the partition in the JSON object; otherwise chosen by key, or "
    "arbitrarily if there is none]",
)
@click.option("--header", "headers", multiple=True, type=Setting(),
              help="A header that is added to each record; may be repeated.")  # fmt: skip
@click.option("--key-format", metavar="FORMAT", help=f"Encode keys: raw, {', '.join(ENCODABLE)}.  The input is "
              "JSON, text for the formats text and hex, and unchanged for raw.  [default: raw]")  # fmt: skip
@click.option("--value-format", metavar="FORMAT", help="Encode values, like --key-format.")
@click.option("--schema-id", type=click.IntRange(1),
              help="ID of the value schema (avro, protobuf, json-schema).")  # fmt: skip
@click.option("--subject", metavar="NAME", help="Subject whose latest schema is used for values.")
@click.option("--message", metavar="NAME", help="Name of the Protobuf message of values.  [default: the first one]")
@click.option("--key-schema-id", type=click.IntRange(1), help="ID of the key schema.")
@click.option("--key-subject", metavar="NAME", help="Subject whose latest schema is used for keys.")
@registry_options
@codec_option
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True,
              help="Required acknowledgements: all in-sync replicas (all), the leader (1) or none (0).")  # fmt: skip
def command(
    topic: str,
    bootstrap: str,
    files: tuple[Path, ...],
    key_separator: str | None,
    as_json: bool,
    partition: int | None,
    headers: tuple[tuple[str, str], ...],
    key_format: str | None,
    value_format: str | None,
    schema_id: int | None,
    subject: str | None,
    message: str | None,
    key_schema_id: int | None,
    key_subject: str | None,
    registry: RegistryAccess,
    codec: Codec,
    acks: str,
) -> None:
    """Write records to a topic, one per line.

    Records are sent in batches; the current batch is sent when the input pauses.  The command exits when all records
    are written.  With --acks all, no record is written twice, even if brokers fail.

    \b
    echo hello | kreplica produce greetings
    printf 'anna:1\\nbert:2\\n' | kreplica produce scores --key-separator :
    kreplica consume orders --json | kreplica produce orders-again --json
    echo '{"total": 3}' | kreplica produce orders --value-format avro --subject orders-value
    """
    if as_json and key_separator is not None:
        raise click.UsageError("--json and --key-separator cannot be combined")
    encoder = PartEncoder(
        registry,
        PartFormat(key_format, key_schema_id, key_subject, None),
        PartFormat(value_format, schema_id, subject, message),
    )
    converter = _LineConverter(
        key_separator, as_json, partition, tuple((name, value.encode()) for name, value in headers), encoder
    )
    options = ProducerOptions(acks=ACKS[acks], codec=codec, linger_s=IDLE_S)
    with open_cluster(bootstrap) as cluster:
        producer = Producer(cluster, options)
        with report_failures(lambda: _state(producer)), producer:
            _check_topic(cluster, topic)
            _produce(cluster, producer, topic, converter, files)
    if sys.stderr.isatty():
        click.echo(f"kreplica: {_state(producer)}", err=True)


def _check_topic(cluster: Cluster, topic: str) -> None:
    try:
        existing_topic(cluster, topic)
    except TopicUnusable as error:
        raise TopicUnusable(f"{error}: create it with `kreplica topic create {topic}`") from None


def _state(producer: Producer) -> str:
    return f"{records_text(producer.written)} written"


def _produce(
    cluster: Cluster, producer: Producer, topic: str, converter: _LineConverter, files: tuple[Path, ...]
) -> None:
    try:
        for location, line in read_files(files, IDLE_S):
            if line is None:
                producer.flush()
                continue
            try:
                record = converter.record(line)
            except BadRecord as error:
                producer.flush()
                raise CommandFailed(f"{location}: {error} ({_state(producer)})") from None
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
    except LineTooLong as error:
        raise CommandFailed(f"{error} ({_state(producer)})") from None


class _LineConverter:
    """Converts lines to records."""

    def __init__(
        self, separator: str | None, as_json: bool, partition: int | None, headers: Headers, encoder: PartEncoder
    ) -> None:
        self._encoder = encoder
        self._separator = None if separator is None else separator.encode()
        self._as_json = as_json
        self._partition = partition
        self._headers = headers

    def record(self, line: bytes) -> InputRecord:
        """Convert a line.

        :raise BadRecord: the line is not a valid record.
        """
        if self._as_json:
            record = parse_line(line, self._encoder.key_from_json, self._encoder.value_from_json)
            partition = record.partition if self._partition is None else self._partition
            return record._replace(headers=record.headers + self._headers, partition=partition)
        if self._separator is None:
            return InputRecord(None, self._encoder.value_from_line(line), self._headers, self._partition)
        key, separator, value = line.partition(self._separator)
        if not separator:
            raise BadRecord(f"the key separator {self._separator.decode()!r} is missing")
        encoder = self._encoder
        return InputRecord(
            encoder.key_from_line(key), encoder.value_from_line(value), self._headers, self._partition
        )
