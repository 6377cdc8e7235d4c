"""Committed offsets of groups, and DeleteRecords."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

OFFSET_COMMIT = Api.define(
    8,
    "OffsetCommit",
    versions=(0, 9),
    flexible_from=8,
    request="""
        group_id str
        generation_id_or_member_epoch i32 1+ =-1
        member_id str 1+
        group_instance_id str? 7+ =null
        retention_time_ms i64 2-4 =-1
        topics []
          name str
          partitions []
            partition_index i32
            committed_offset i64
            committed_leader_epoch i32 6+ =-1
            commit_timestamp i64 1 =-1
            committed_metadata str?
    """,
    response="""
        throttle_time_ms i32 3+
        topics []
          name str
          partitions []
            partition_index i32
            error_code i16
    """,
)

OFFSET_FETCH = Api.define(
    9,
    "OffsetFetch",
    versions=(0, 9),
    flexible_from=6,
    request="""
        group_id str 0-7
        topics []?2-7 0-7
          name str
          partition_indexes []i32
        groups [] 8+
          group_id str
          member_id str? 9+ =null
          member_epoch i32 9+ =-1
          topics []?
            name str
            partition_indexes []i32
        require_stable bool 7+
    """,
    response="""
        throttle_time_ms i32 3+
        topics [] 0-7
          name str
          partitions []
            partition_index i32
            committed_offset i64
            committed_leader_epoch i32 5-7 =-1
            metadata str?0-7
            error_code i16
        error_code i16 2-7
        groups [] 8+
          group_id str
          topics []
            name str
            partitions []
              partition_index i32
              committed_offset i64
              committed_leader_epoch i32 =-1
              metadata str?
              error_code i16
          error_code i16
    """,
)

OFFSET_DELETE = Api.define(
    47,
    "OffsetDelete",
    versions=(0, 0),
    flexible_from=None,
    request="""
        group_id str
        topics []
          name str
          partitions []
            partition_index i32
    """,
    response="""
        error_code i16
        throttle_time_ms i32
        topics []
          name str
          partitions []
            partition_index i32
            error_code i16
    """,
)

DELETE_RECORDS = Api.define(
    21,
    "DeleteRecords",
    versions=(0, 2),
    flexible_from=2,
    request="""
        topics []
          name str
          partitions []
            partition_index i32
            offset i64
        timeout_ms i32
    """,
    response="""
        throttle_time_ms i32
        topics []
          name str
          partitions []
            partition_index i32
            low_watermark i64
            error_code i16
    """,
)
