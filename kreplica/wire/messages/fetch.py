"""Fetch, ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from kreplica.wire.messages.api import Api
from kreplica.wire.template_cache import VaryingFields

FETCH = Api.define(
    1,
    "Fetch",
    versions=(0, 17),
    flexible_from=12,
    request="""
        cluster_id str? 12+ @0 =null
        replica_id i32 0-14 =-1
        replica_state {} 15+ @1
          replica_id i32 =-1
          replica_epoch i64 =-1
        max_wait_ms i32
        min_bytes i32
        max_bytes i32 3+ =2147483647
        isolation_level i8 4+
        session_id i32 7+
        session_epoch i32 7+ =-1
        topics []
          topic str 0-12
          topic_id uuid 13+
          partitions []
            partition i32
            current_leader_epoch i32 9+ =-1
            fetch_offset i64
            last_fetched_epoch i32 12+ =-1
            log_start_offset i64 5+ =-1
            partition_max_bytes i32
            replica_directory_id uuid 17+ @0
        forgotten_topics_data [] 7+
          topic str 7-12
          topic_id uuid 13+
          partitions []i32
        rack_id str 11+
    """,
    response="""
        throttle_time_ms i32 1+
        error_code i16 7+
        session_id i32 7+
        responses []
          topic str 0-12
          topic_id uuid 13+
          partitions []
            partition_index i32
            error_code i16
            high_watermark i64
            last_stable_offset i64 4+ =-1
            log_start_offset i64 5+ =-1
            diverging_epoch {} 12+ @0
              epoch i32 =-1
              end_offset i64 =-1
            current_leader {} 12+ @1
              leader_id i32 =-1
              leader_epoch i32 =-1
            snapshot_id {} 12+ @2
              end_offset i64 =-1
              epoch i32 =-1
            aborted_transactions []? 4+
              producer_id i64
              first_offset i64
            preferred_read_replica i32 11+ =-1
            records records? =null
        node_endpoints [] 16+ @0
          node_id i32
          host str
          port i32
          rack str? =null
    """,
    request_varying=VaryingFields(
        rows=("topics", "partitions"),
        numbers=("session_id", "session_epoch"),
        row_numbers=("partition", "fetch_offset"),
    ),
    response_varying=VaryingFields(
        rows=("responses", "partitions"),
        numbers=("session_id",),
        row_numbers=("partition_index", "high_watermark", "last_stable_offset"),
        records="records",
    ),
)

LIST_OFFSETS = Api.define(
    2,
    "ListOffsets",
    versions=(0, 9),
    flexible_from=6,
    request="""
        replica_id i32
        isolation_level i8 2+
        topics []
          name str
          partitions []
            partition_index i32
            current_leader_epoch i32 4+ =-1
            timestamp i64
            max_num_offsets i32 0 =1
    """,
    response="""
        throttle_time_ms i32 2+
        topics []
          name str
          partitions []
            partition_index i32
            error_code i16
            old_style_offsets []i64 0
            timestamp i64 1+ =-1
            offset i64 1+ =-1
            leader_epoch i32 4+ =-1
    """,
)

OFFSET_FOR_LEADER_EPOCH = Api.define(
    23,
    "OffsetForLeaderEpoch",
    versions=(0, 4),
    flexible_from=4,
    request="""
        replica_id i32 3+ =-2
        topics []
          topic str
          partitions []
            partition i32
            current_leader_epoch i32 2+ =-1
            leader_epoch i32
    """,
    response="""
        throttle_time_ms i32 2+
        topics []
          topic str
          partitions []
            error_code i16
            partition i32
            leader_epoch i32 1+ =-1
            end_offset i64 =-1
    """,
)
