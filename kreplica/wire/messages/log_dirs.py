"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

ALTER_REPLICA_LOG_DIRS = Api.define(
    34,
    "AlterReplicaLogDirs",
    versions=(0, 2),
    flexible_from=2,
    request="""
        dirs []
          path str
          topics []
            name str
            partitions []i32
    """,
    response="""
        throttle_time_ms i32
        results []
          topic_name str
          partitions []
            partition_index i32
            error_code i16
    """,
)

DESCRIBE_LOG_DIRS = Api.define(
    35,
    "DescribeLogDirs",
    versions=(0, 4),
    flexible_from=2,
    request="""
        topics []?
          topic str
          partitions []i32
    """,
    response="""
        throttle_time_ms i32
        error_code i16 3+
        results []
          error_code i16
          log_dir str
          topics []
            name str
            partitions []
              partition_index i32
              partition_size i64
              offset_lag i64
              is_future_key bool
          total_bytes i64 4+ =-1
          usable_bytes i64 4+ =-1
    """,
)
