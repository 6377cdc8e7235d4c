"""Topics: creation, deletion, and addition of partitions."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

CREATE_TOPICS = Api.define(
    19,
    "CreateTopics",
    versions=(0, 7),
    flexible_from=5,
    request="""
        topics []
          name str
          num_partitions i32
          replication_factor i16
          assignments []
            partition_index i32
            broker_ids []i32
          configs []
            name str
            value str?
        timeout_ms i32 =60000
        validate_only bool 1+
    """,
    response="""
        throttle_time_ms i32 2+
        topics []
          name str
          topic_id uuid 7+
          error_code i16
          error_message str? 1+
          topic_config_error_code i16 5+ @0
          num_partitions i32 5+ =-1
          replication_factor i16 5+ =-1
          configs []? 5+
            name str
            value str?
            read_only bool
            config_source i8 =-1
            is_sensitive bool
    """,
)

DELETE_TOPICS = Api.define(
    20,
    "DeleteTopics",
    versions=(0, 6),
    flexible_from=4,
    request="""
        topics [] 6+
          name str? =null
          topic_id uuid
        topic_names []str 0-5
        timeout_ms i32
    """,
    response="""
        throttle_time_ms i32 1+
        responses []
          name str?6+
          topic_id uuid 6+
          error_code i16
          error_message str? 5+ =null
    """,
)

CREATE_PARTITIONS = Api.define(
    37,
    "CreatePartitions",
    versions=(0, 3),
    flexible_from=2,
    request="""
        topics []
          name str
          count i32
          assignments []?
            broker_ids []i32
        timeout_ms i32
        validate_only bool
    """,
    response="""
        throttle_time_ms i32
        results []
          name str
          error_code i16
          error_message str? =null
    """,
)
