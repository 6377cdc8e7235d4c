"""Leader elections and partition reassignments."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

ELECT_LEADERS = Api.define(
    43,
    "ElectLeaders",
    versions=(0, 2),
    flexible_from=2,
    request="""
        election_type i8 1+
        topic_partitions []?
          topic str
          partitions []i32
        timeout_ms i32 =60000
    """,
    response="""
        throttle_time_ms i32
        error_code i16 1+
        replica_election_results []
          topic str
          partition_result []
            partition_id i32
            error_code i16
            error_message str?
    """,
)

ALTER_PARTITION_REASSIGNMENTS = Api.define(
    45,
    "AlterPartitionReassignments",
    versions=(0, 0),
    flexible_from=0,
    request="""
        timeout_ms i32 =60000
        topics []
          name str
          partitions []
            partition_index i32
            replicas []i32? =null
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str?
        responses []
          name str
          partitions []
            partition_index i32
            error_code i16
            error_message str?
    """,
)

LIST_PARTITION_REASSIGNMENTS = Api.define(
    46,
    "ListPartitionReassignments",
    versions=(0, 0),
    flexible_from=0,
    request="""
        timeout_ms i32 =60000
        topics []? =null
          name str
          partition_indexes []i32
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str?
        topics []
          name str
          partitions []
            partition_index i32
            replicas []i32
            adding_replicas []i32
            removing_replicas []i32
    """,
)
