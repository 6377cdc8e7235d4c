"""Report of a profile: statistics for people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from kreplica.model import TopicPartition
from kreplica.spark.pipelines.profile.measures import SMALL_PRODUCERS, Measures, Tally
from kreplica.spark.pipelines.profile.sketches import Bucket, Rates, Sizes
from kreplica.spark.source.ranges import OffsetRange
from kreplica.wire.batches import NO_PRODUCER_ID, TimestampType
from kreplica.wire.compression import Codec


@dataclass(frozen=True, slots=True)
class SizeStatistics:
    """Sizes of keys, values or batches in bytes; quantiles are accurate to 2 %."""

    count: int
    min: int
    median: int
    p99: int
    max: int
    mean: float


@dataclass(frozen=True, slots=True)
class CodecStatistics:
    """Batches with one codec.

    :param ratio: decompressed size divided by size in the log; None if no batch was decompressed.
    """

    codec: str
    batches: int
    records: int
    size_bytes: int
    ratio: float | None


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """Batches of one producer.

    :param producer_id: -1 for all producers without an ID, -2 for the smallest producers combined.
    """

    producer_id: int
    batches: int
    records: int
    size_bytes: int
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class TopKey:
    """Records with one key.

    :param key: text, or ``0x...`` if it is not printable.
    :param share: share of the decoded records.
    """

    key: str
    records: int
    share: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeyStatistics:
    """Keys of the decoded records.

    :param distinct: exact if ``is_exact``, otherwise accurate to 2 %.
    :param superseded: records that compaction could delete: the same partition has a later record with the same key.
    :param count_error: maximum number of records that the count of a top key omits.
    """

    keyed: int
    null: int
    distinct: int
    is_exact: bool
    superseded: int
    superseded_share: float
    count_error: int
    top: tuple[TopKey, ...]


@dataclass(frozen=True, slots=True)
class RateStatistics:
    """Rates by record timestamp; all 0 if there are no timestamps.

    :param first_ms: start of the first bucket; ``last_ms`` is the start of the last one.
    :param width_ms: width of a bucket: a minute, or more if there would be too many.
    :param records_per_second: mean from the first bucket to the end of the last one.
    :param peak_records_per_second: rate of the bucket with the most records, which starts at ``peak_ms``.
    """

    first_ms: int
    last_ms: int
    width_ms: int
    records_per_second: float
    bytes_per_second: float
    peak_records_per_second: float
    peak_bytes_per_second: float
    peak_ms: int
    without_time: int
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class TransactionStatistics:
    """Records of transactions by outcome; bytes are those of their batches."""

    committed: int
    aborted: int
    open: int
    aborted_bytes: int
    markers: int
    aborted_share: float


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """One partition.

    :param start: first measured offset; ``end`` is exclusive.
    :param size_bytes: size of the batches in one replica's log.
    :param bytes_per_second: mean over the time span of the topic.
    """

    partition: int
    start: int
    end: int
    records: int
    size_bytes: int
    distinct_keys: int
    superseded: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """One topic.

    :param size_in_memory: decompressed size of its batches.
    :param opened: number of decoded records: all of them, or a sample.
    :param imbalance: bytes of the largest partition divided by the mean; 1 is balanced.
    """

    topic: str
    records: int
    batches: int
    size_bytes: int
    size_in_memory: int
    opened: int
    without_value: int
    imbalance: float
    batch_sizes: SizeStatistics
    key_sizes: SizeStatistics
    value_sizes: SizeStatistics
    rates: RateStatistics
    keys: KeyStatistics
    codecs: tuple[CodecStatistics, ...]
    timestamp_types: Mapping[str, int]
    transactions: TransactionStatistics
    producers: tuple[ProducerStatistics, ...]
    producers_count: int
    partitions: tuple[PartitionStatistics, ...]


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """Profile of topics.

    :param sample: share of batches whose records were decoded.
    """

    sample: float
    records: int
    size_bytes: int
    topics: tuple[TopicStatistics, ...]


MeasuresByPartition = Mapping[TopicPartition, tuple[OffsetRange, Measures]]


def profile_report(measures_by_partition: MeasuresByPartition, *, sample: float, top: int) -> ProfileReport:
    """Compute the report.

    :param measures_by_partition: covered offsets and measures, by partition.
    :param top: number of keys and producers listed.
    """
    topics = []
    for topic, group in groupby(sorted(measures_by_partition), key=lambda each: each.topic):
        topics.append(_topic(topic, {each.partition: measures_by_partition[each] for each in group}, top))
    return ProfileReport(
        sample, sum(each.records for each in topics), sum(each.size_bytes for each in topics), tuple(topics)
    )


def _topic(topic: str, rows: Mapping[int, tuple[OffsetRange, Measures]], top: int) -> TopicStatistics:
    whole = Measures()
    for _, measures in rows.values():
        whole.merge(measures)
    rates = _rates(whole.rates, whole.without_time)
    span_s = max(1.0, (rates.last_ms - rates.first_ms + rates.width_ms) / 1000)
    partitions = tuple(_partition(number, *row, span_s) for number, row in rows.items())
    total = whole.total
    largest = max((each.size_bytes for each in partitions), default=0)
    return TopicStatistics(
        topic=topic,
        records=total.records,
        batches=total.batches,
        size_bytes=total.size_bytes + whole.control_bytes,
        size_in_memory=sum(each.size_in_memory for each in whole.by_codec.values()) + whole.control_bytes,
        opened=whole.opened,
        without_value=whole.without_value,
        imbalance=largest * len(partitions) / max(1, sum(each.size_bytes for each in partitions)),
        batch_sizes=_sizes(whole.batch_sizes),
        key_sizes=_sizes(whole.key_sizes),
        value_sizes=_sizes(whole.value_sizes),
        rates=rates,
        keys=_keys(whole, sum(each.superseded for each in partitions), top),
        codecs=tuple(_codec(codec, whole.by_codec[codec]) for codec in sorted(whole.by_codec)),
        timestamp_types={TimestampType(kind).name: count for kind, count in sorted(whole.timestamp_types.items())},
        transactions=_transactions(whole, [measures for _, measures in rows.values()]),
        producers=_producers(whole.by_producer, top),
        producers_count=sum(each not in (NO_PRODUCER_ID, SMALL_PRODUCERS) for each in whole.by_producer),
        partitions=partitions,
    )


def _partition(number: int, covered: OffsetRange, measures: Measures, span_s: float) -> PartitionStatistics:
    total = measures.total
    size = total.size_bytes + measures.control_bytes
    distinct = measures.keys.distinct
    superseded = max(0, measures.keyed - distinct)
    return PartitionStatistics(
        number, covered.start, covered.end, total.records, size, distinct, superseded, size / span_s
    )


def _sizes(sizes: Sizes) -> SizeStatistics:
    return SizeStatistics(
        sizes.count,
        sizes.smallest or 0,
        sizes.quantile(0.5),
        sizes.quantile(0.99),
        sizes.largest,
        sizes.total / max(1, sizes.count),
    )


def _rates(rates: Rates, without_time: int) -> RateStatistics:
    buckets, width_ms = rates.buckets(), rates.width_ms
    if not buckets:
        return RateStatistics(0, 0, width_ms, 0, 0, 0, 0, 0, without_time, ())
    seconds = (buckets[-1].start_ms - buckets[0].start_ms + width_ms) / 1000
    peak = max(buckets, key=lambda each: each.records)
    return RateStatistics(
        first_ms=buckets[0].start_ms,
        last_ms=buckets[-1].start_ms,
        width_ms=width_ms,
        records_per_second=sum(each.records for each in buckets) / seconds,
        bytes_per_second=sum(each.size_bytes for each in buckets) / seconds,
        peak_records_per_second=peak.records * 1000 / width_ms,
        peak_bytes_per_second=max(each.size_bytes for each in buckets) * 1000 / width_ms,
        peak_ms=peak.start_ms,
        without_time=without_time,
        buckets=tuple(buckets),
    )


def _keys(whole: Measures, superseded: int, top: int) -> KeyStatistics:
    opened = max(1, whole.opened)
    return KeyStatistics(
        keyed=whole.keyed,
        null=whole.opened - whole.keyed,
        distinct=whole.keys.distinct,
        is_exact=whole.keys.is_exact,
        superseded=superseded,
        superseded_share=superseded / opened,
        count_error=whole.keys.error,
        top=tuple(
            TopKey(key_text(each.key), each.records, each.records / opened, each.size_bytes)
            for each in whole.keys.top(top)
        ),
    )


def key_text(key: bytes) -> str:
    """Return a key as text if it is printable, otherwise in hexadecimal."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() else f"0x{key.hex()}"


def _codec(codec: int, tally: Tally) -> CodecStatistics:
    name = Codec(codec).name.lower() if codec in list(Codec) else str(codec)
    ratio = tally.decompressed_size / tally.sampled_size if tally.sampled_size else None
    return CodecStatistics(name, tally.batches, tally.records, tally.size_bytes, ratio)


def _transactions(whole: Measures, parts: Iterable[Measures]) -> TransactionStatistics:
    """Sum the outcomes of each partition, since a marker in one partition does not apply to another."""
    committed = aborted = still_open = aborted_bytes = markers = 0
    for measures in parts:
        committed_amount, aborted_amount, open_amount = measures.transactions.totals()
        committed += committed_amount.records
        aborted += aborted_amount.records
        aborted_bytes += aborted_amount.size_bytes
        still_open += open_amount.records
        markers += measures.transactions.markers
    share = aborted / max(1, whole.total.records)
    return TransactionStatistics(committed, aborted, still_open, aborted_bytes, markers, share)


def _producers(tallies: Mapping[int, Tally], top: int) -> tuple[ProducerStatistics, ...]:
    largest = sorted(tallies.items(), key=lambda each: (-each[1].size_bytes, each[0]))[:top]
    return tuple(
        ProducerStatistics(producer, each.batches, each.records, each.size_bytes, each.is_transactional)
        for producer, each in largest
    )
