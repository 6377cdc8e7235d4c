"""Options of the source, parsed and validated: those of Spark's Kafka source, and others prefixed ``kreplica.``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kreplica.client_core.addresses import parse_addresses
from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.model import TopicPartition
from kreplica.spark.client_settings import ClientSettings, client_settings
from kreplica.spark.option_parsing import boolean, choice, duration_s, number
from kreplica.spark.source.positions import (
    AtTime,
    CommonOffset,
    NoMatch,
    PartitionOffsets,
    Position,
    parse_numbers,
    parse_partitions,
    parse_position,
)

log = logging.getLogger(__name__)

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"

UNSUPPORTED = {
    "kafka.auto.offset.reset": "use the option startingOffsets",
    "kafka.key.deserializer": "keys are binary; use DataFrame operations to read them",
    "kafka.value.deserializer": "values are binary; use DataFrame operations to read them",
    "kafka.enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "kafka.interceptor.classes": "interceptors are not supported",
}

_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_KNOWN = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", *_BATCH_ONLY, *_STREAM_ONLY, "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "includeHeaders", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs", "groupIdPrefix", "kreplica.columns", "kreplica.source", "kreplica.log.dirs",
)  # fmt: skip
_SPARK_OPTIONS = ("path", "checkpointlocation", "queryname", "mode")


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics selected by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose full name matches a Python (not Java) regular expression."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions selected individually."""

    partitions: frozenset[TopicPartition]


Selection: TypeAlias = Topics | TopicPattern | Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a read.

    :param bootstrap: bootstrap brokers.
    :param columns: columns of the rows, in order.
    :param log_dirs: log directories of one broker to read; empty to fetch from brokers.
    :param poll_timeout_s: time that a task waits for records before it fails.
    :param min_partitions: approximate minimum number of tasks; None for one per nonempty partition.
    :param records_per_partition_max: maximum offsets of one task.
    :param offsets_per_trigger_max: maximum offsets of one micro-batch, over all partitions. A micro-batch starts when
        ``offsets_per_trigger_min`` offsets are available, or after ``trigger_delay_s_max``.
    """

    bootstrap: str
    selection: Selection
    starting: Position
    ending: Position
    settings: ClientSettings
    columns: tuple[str, ...] = COLUMNS
    fail_on_data_loss: bool = True
    log_dirs: tuple[str, ...] = ()
    poll_timeout_s: float = 120.0
    offset_retries: int = 3
    offset_retry_s: float = 0.01
    min_partitions: int | None = None
    records_per_partition_max: int | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_s_max: float = 900.0


def source_options(raw_options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Parse the options of ``DataFrameReader`` and ``DataStreamReader``, whose names ignore case.

    :raise ValueError: an option is missing, malformed, unknown, or not valid for this kind of read; the message names
        it.
    """
    options = _Options(raw_options)
    options.check_names(is_streaming)
    is_offline = (
        choice(options.get("kreplica.source"), "kreplica.source", ("brokers", "segments"), "brokers") == "segments"
    )
    log_dirs = tuple(each.strip() for each in (options.get("kreplica.log.dirs") or "").split(",") if each.strip())
    if is_offline != bool(log_dirs):
        raise ValueError("kreplica.source=segments and kreplica.log.dirs must be set together")
    if is_offline and is_streaming:
        raise ValueError("kreplica.source=segments supports batch reads only")
    bootstrap = options.get("kafka.bootstrap.servers") or ""
    if not bootstrap and not is_offline:
        raise ValueError("option 'kafka.bootstrap.servers' must be given")
    if bootstrap:
        parse_addresses(bootstrap)
    starting = _starting(options, CommonOffset(LATEST if is_streaming else EARLIEST))
    ending = _ending(options)
    if not is_streaming and starting == CommonOffset(LATEST):
        raise ValueError("startingOffsets=latest: a batch read would return no records")
    if ending == CommonOffset(EARLIEST):
        raise ValueError("endingOffsets=earliest: a batch read would return no records")
    for position, option, forbidden, word in (
        (starting, "startingOffsets", LATEST if not is_streaming else None, "latest (-1)"),
        (ending, "endingOffsets", EARLIEST, "earliest (-2)"),
    ):
        if isinstance(position, PartitionOffsets) and forbidden in position.offsets.values():
            raise ValueError(f"option {option!r}: a batch read cannot {option.partition('ing')[0]} at {word}")
    get = options.get
    return SourceOptions(
        bootstrap=bootstrap,
        selection=_selection(options, is_offline),
        starting=starting,
        ending=ending,
        settings=client_settings(raw_options, UNSUPPORTED),
        columns=_columns(options),
        fail_on_data_loss=boolean(get("failOnDataLoss"), "failOnDataLoss", default=True),
        log_dirs=log_dirs,
        poll_timeout_s=(number(get("kafkaConsumer.pollTimeoutMs"), "kafkaConsumer.pollTimeoutMs", 1) or 120_000) / 1000,
        offset_retries=_or_default(number(get("fetchOffset.numRetries"), "fetchOffset.numRetries", 0), 3),
        offset_retry_s=_or_default(number(get("fetchOffset.retryIntervalMs"), "fetchOffset.retryIntervalMs", 0), 10)
        / 1000,
        min_partitions=number(get("minPartitions"), "minPartitions", 1),
        records_per_partition_max=number(get("maxRecordsPerPartition"), "maxRecordsPerPartition", 1),
        offsets_per_trigger_max=number(get("maxOffsetsPerTrigger"), "maxOffsetsPerTrigger", 1),
        offsets_per_trigger_min=number(get("minOffsetsPerTrigger"), "minOffsetsPerTrigger", 1),
        trigger_delay_s_max=duration_s(get("maxTriggerDelay"), "maxTriggerDelay", 900.0),
    )


def source_columns(raw_options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that the options select, without parsing other options.

    :raise ValueError: an option that selects columns is malformed.
    """
    return _columns(_Options(raw_options))


class _Options:
    """Options by lower-case name, as passed by Spark."""

    def __init__(self, raw_options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in raw_options.items()}

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def check_names(self, is_streaming: bool) -> None:
        """Check the names of the options.

        :raise ValueError: an option is unknown, or is valid for batch reads only.
        """
        for name in _BATCH_ONLY if is_streaming else _STREAM_ONLY:
            if self.get(name) is None:
                continue
            if is_streaming:
                raise ValueError(f"option {name!r} is not valid in streaming queries")
            log.warning("option %s is ignored in batch queries", name)
        known = {name.lower() for name in _KNOWN}
        for name in self._values:
            if name in known or name.startswith("kafka.") or name in _SPARK_OPTIONS:
                continue
            raise ValueError(f"option {name!r} is not an option of the source kreplica")


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def _selection(options: _Options, is_offline: bool) -> Selection:
    names = ("subscribe", "subscribePattern", "assign")
    present = [name for name in names if options.get(name) is not None]
    if not present and is_offline:
        return TopicPattern(".*")
    if len(present) != 1:
        requirement = "exactly one of" if not present else "only one of"
        text = ", ".join(present) or "none"
        raise ValueError(f"{requirement} the options subscribe, subscribePattern, assign must be given, not {text}")
    text = (options.get(present[0]) or "").strip()
    if present[0] == "assign":
        partitions = parse_partitions(text, "assign")
        if not partitions:
            raise ValueError("option 'assign' is empty")
        return Partitions(partitions)
    if present[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"option 'subscribePattern': {text!r}: {error}") from error
        if not text:
            raise ValueError("option 'subscribePattern' is empty")
        return TopicPattern(text)
    topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not topics:
        raise ValueError("option 'subscribe' is empty")
    return Topics(topics)


def _starting(options: _Options, default: Position) -> Position:
    strategy = choice(
        options.get("startingOffsetsByTimestampStrategy"),
        "startingOffsetsByTimestampStrategy",
        ("error", "latest"),
        "error",
    )
    found = _by_time(options, "startingTimestamp", "startingOffsetsByTimestamp", NoMatch(strategy))
    if found is not None:
        return found
    text = options.get("startingOffsets")
    return default if text is None else parse_position(text, "startingOffsets")


def _ending(options: _Options) -> Position:
    found = _by_time(options, "endingTimestamp", "endingOffsetsByTimestamp", NoMatch.LATEST)
    if found is not None:
        return found
    text = options.get("endingOffsets")
    return CommonOffset(LATEST) if text is None else parse_position(text, "endingOffsets")


def _by_time(options: _Options, common_option: str, partition_option: str, no_match: NoMatch) -> AtTime | None:
    """Parse a timestamp position; the option for all partitions takes precedence over the per-partition option."""
    text = options.get(common_option)
    if text is not None:
        return AtTime(common_ms=number(text, common_option, 0), no_match=no_match)
    text = options.get(partition_option)
    if text is not None:
        return AtTime(parse_numbers(text, partition_option), no_match=no_match)
    return None


def _columns(options: _Options) -> tuple[str, ...]:
    has_headers = boolean(options.get("includeHeaders"), "includeHeaders", default=False)
    all_columns = (*COLUMNS, HEADERS_COLUMN) if has_headers else COLUMNS
    text = options.get("kreplica.columns")
    if text is None:
        return all_columns
    chosen = tuple(each.strip() for each in text.split(",") if each.strip())
    for name in chosen:
        if name not in (*COLUMNS, HEADERS_COLUMN) or chosen.count(name) > 1:
            raise ValueError(
                f"option 'kreplica.columns': {name!r}: expected {', '.join((*COLUMNS, HEADERS_COLUMN))}, each once"
            )
    if not chosen:
        raise ValueError("option 'kreplica.columns' is empty")
    return chosen
