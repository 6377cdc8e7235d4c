"""Topic and broker settings that storage uses, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from kreplica.wire.compression import Codec

NO_LIMIT = 2**63 - 1
"""Value that means "never" or "unlimited" in Kafka's settings."""

CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""Codec for each value of ``compression.type``; None keeps the producer's codec."""

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log; names are Kafka's topic settings with underscores instead of dots.

    Settings may change while the log is open: assign a new ``LogConfig`` to ``Log.config``.
    """

    segment_bytes: int = 2**30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 2**20
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NO_LIMIT
    flush_ms: int = NO_LIMIT
    max_message_bytes: int = 2**20 + 12
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = NO_LIMIT
    message_timestamp_after_max_ms: int = NO_LIMIT
    compression_type: str = "producer"
    preallocate: bool = False
    log_append_time: bool = field(init=False)
    """True if the broker's clock replaces the producers' timestamps."""
    append_size_max: int = field(init=False)
    """Maximum size of an appended batch in bytes."""
    reads_all_records: bool = field(init=False)
    """True if a leader must read the records of every batch, including uncompressed batches."""
    checks_contents: bool = field(init=False)
    """True if a leader must check more than the header and CRC of a batch."""

    def __post_init__(self) -> None:
        if self.compression_type not in CODECS:
            raise ValueError(f"compression.type {self.compression_type!r} is not one of {', '.join(CODECS)}")
        log_append_time = self.message_timestamp_type == "LogAppendTime"
        reads_all = (
            self.compacted
            or self.codec not in (None, Codec.NONE)
            or (self.message_timestamp_before_max_ms != NO_LIMIT and not log_append_time)
        )
        checks = reads_all or log_append_time or self.message_timestamp_after_max_ms != NO_LIMIT
        object.__setattr__(self, "log_append_time", log_append_time)
        object.__setattr__(self, "reads_all_records", reads_all)
        object.__setattr__(self, "checks_contents", checks)
        object.__setattr__(self, "append_size_max", min(self.max_message_bytes, self.segment_bytes))

    @property
    def codec(self) -> int | None:
        """Codec for all stored batches; None keeps the producer's codec."""
        return CODECS[self.compression_type]

    @property
    def compacted(self) -> bool:
        """True if old values of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_segments(self) -> bool:
        """True if old segments are removed by time and size."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Settings of all logs of a broker; names are Kafka's broker settings with underscores instead of dots.

    :param open_segments_max: maximum number of segments with an open file and indexes in memory (not a Kafka setting).
    :param partition_producer_ids_max: maximum number of producers of one log (not a Kafka setting).
    :param broker_producer_ids_max: maximum number of producers of all logs (not a Kafka setting).
    :param scrub_bytes_per_second: rate at which stored data is checked for damage; 0 disables it (not a Kafka setting).
    """

    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = 3_000
    log_retention_check_interval_ms: int = 300_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = DAY_MS
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 * 2**20
    log_cleaner_io_max_bytes_per_second: float = float(NO_LIMIT)
    open_segments_max: int = 4096
    partition_producer_ids_max: int = 100_000
    broker_producer_ids_max: int = 2_000_000
    scrub_bytes_per_second: int = 2**20
