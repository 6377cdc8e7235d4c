"""Text output of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kreplica.cli.terminal.screen import Screen, bytes_text, count_text, problem_text, time_text

if TYPE_CHECKING:
    from kreplica.spark.pipelines.profile.report import ProfileReport, RateStatistics, TopicStatistics

IMBALANCE_HIGH = 1.5
"""Ratio of the largest partition to the mean from which it is highlighted."""

KEY_LENGTH_MAX = 60


def print_profile(screen: Screen, report: ProfileReport) -> None:
    """Print a table of all topics, then the details of each topic."""
    columns = ("TOPIC", "PARTITIONS", "RECORDS", "DATA", "IN MEMORY", "RECORDS/S", "KEYS", "SUPERSEDED", "IMBALANCE")
    rows = [
        (
            each.topic,
            len(each.partitions),
            each.records,
            bytes_text(each.size_bytes),
            bytes_text(each.size_in_memory),
            f"{each.rates.records_per_second:,.1f}",
            _about(each.keys.distinct, each.keys.is_exact),
            _percent(each.keys.superseded_share),
            problem_text(f"{each.imbalance:.2f}", when=each.imbalance >= IMBALANCE_HIGH),
        )
        for each in report.topics
    ]
    screen.table(columns, rows, empty_text="No topic has a partition.")
    if report.sample < 1:
        screen.line(f"Keys and values were measured in a sample of {_percent(report.sample)} of the batches.")
    for topic in report.topics:
        if topic.records:
            screen.line()
            _print_topic(screen, topic)


def _print_topic(screen: Screen, topic: TopicStatistics) -> None:
    screen.line(topic.topic, "bold")
    transactions, keys = topic.transactions, topic.keys
    in_transactions = transactions.committed + transactions.aborted + transactions.open
    types = ", ".join(f"{name} {count:,}" for name, count in topic.timestamp_types.items())
    screen.pairs(
        [
            ("records", f"{topic.records:,} in {count_text(topic.batches, 'batch', 'batches')}"),
            ("data", f"{bytes_text(topic.size_bytes)} in the log, {bytes_text(topic.size_in_memory)} in memory"),
            ("from", time_text(topic.rates.first_ms or None)),
            ("to", time_text(topic.rates.last_ms or None)),
            ("rate", _rate(topic.rates)),
            ("peak", _peak(topic.rates)),
            ("timestamps", types + (f", {topic.rates.without_time:,} without" if topic.rates.without_time else "")),
            ("keys", f"{_about(keys.distinct, keys.is_exact)} distinct, {keys.null:,} records without a key"),
            ("superseded", f"{keys.superseded:,} records are followed by a later record with the same key"
             f" ({_percent(keys.superseded_share)}): compaction can remove them"),
            ("without value", f"{topic.without_value:,}" if topic.without_value else None),
            ("transactions", f"{transactions.committed:,} records committed, {transactions.aborted:,} aborted"
             f" ({_percent(transactions.aborted_share)}, {bytes_text(transactions.aborted_bytes)}),"
             f" {transactions.open:,} open"
             if in_transactions else None),
        ]
    )  # fmt: skip
    sizes = (("batches", topic.batch_sizes), ("keys", topic.key_sizes), ("values", topic.value_sizes))
    rows = [
        (name, each.min, each.median, each.p99, each.max, f"{each.mean:,.1f}") for name, each in sizes if each.count
    ]
    screen.table(("BYTES OF", "MIN", "MEDIAN", "P99", "MAX", "MEAN"), rows, empty_text="")
    _print_details(screen, topic)


def _print_details(screen: Screen, topic: TopicStatistics) -> None:
    codecs = [
        (each.codec, each.batches, each.records, bytes_text(each.size_bytes), each.ratio and f"{each.ratio:.2f}")
        for each in topic.codecs
    ]
    screen.table(("CODEC", "BATCHES", "RECORDS", "DATA", "RATIO"), codecs, empty_text="")
    producers = [
        (
            {-1: "without an ID", -2: "others"}.get(each.producer_id, str(each.producer_id)),
            each.records,
            bytes_text(each.size_bytes),
            _percent(each.size_bytes / max(1, topic.size_bytes)),
            each.is_transactional,
        )
        for each in topic.producers
    ]
    screen.table(("PRODUCER", "RECORDS", "DATA", "SHARE", "TRANSACTIONS"), producers, empty_text="No producers.")
    keys = [(_short(each.key), each.records, _percent(each.share), bytes_text(each.size_bytes))
            for each in topic.keys.top]  # fmt: skip
    if keys:
        screen.table(("KEY", "RECORDS", "SHARE", "DATA"), keys, empty_text="")
    if topic.keys.count_error and keys:
        screen.line(f"Counts are approximate: each may be too low by up to {topic.keys.count_error:,} records.")
    partitions = [
        (each.partition, each.start, each.end, each.records, bytes_text(each.size_bytes),
         f"{bytes_text(each.bytes_per_second)}/s", each.distinct_keys)
        for each in topic.partitions
    ]  # fmt: skip
    screen.table(("PARTITION", "START", "END", "RECORDS", "DATA", "RATE", "KEYS"), partitions, empty_text="")


def _rate(rates: RateStatistics) -> str:
    return f"{rates.records_per_second:,.1f} records/s, {bytes_text(rates.bytes_per_second)}/s"


def _peak(rates: RateStatistics) -> str | None:
    if not rates.buckets:
        return None
    width = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day"}.get(rates.width_ms, "interval")
    return (
        f"{rates.peak_records_per_second:,.1f} records/s in the {width} that starts at {time_text(rates.peak_ms)},"
        f" {bytes_text(rates.peak_bytes_per_second)}/s"
    )


def _about(count: int, is_exact: bool) -> str:
    return f"{count:,}" if is_exact else f"about {count:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _short(key: str) -> str:
    return key if len(key) <= KEY_LENGTH_MAX else f"{key[:KEY_LENGTH_MAX]}..."
