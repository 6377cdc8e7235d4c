"""Metadata of the cluster: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

METADATA = Api.define(
    3,
    "Metadata",
    versions=(0, 12),
    flexible_from=9,
    request="""
        topics []?1+
          topic_id uuid 10+
          name str?10+
        allow_auto_topic_creation bool 4+ =1
        include_cluster_authorized_operations bool 8-10
        include_topic_authorized_operations bool 8+
    """,
    response="""
        throttle_time_ms i32 3+
        brokers []
          node_id i32
          host str
          port i32
          rack str? 1+ =null
        cluster_id str? 2+ =null
        controller_id i32 1+ =-1
        topics []
          error_code i16
          name str?12+
          topic_id uuid 10+
          is_internal bool 1+
          partitions []
            error_code i16
            partition_index i32
            leader_id i32
            leader_epoch i32 7+ =-1
            replica_nodes []i32
            isr_nodes []i32
            offline_replicas []i32 5+
          topic_authorized_operations i32 8+ =-2147483648
        cluster_authorized_operations i32 8-10 =-2147483648
    """,
)

DESCRIBE_CLUSTER = Api.define(
    60,
    "DescribeCluster",
    versions=(0, 2),
    flexible_from=0,
    request="""
        include_cluster_authorized_operations bool
        endpoint_type i8 1+ =1
        include_fenced_brokers bool 2+
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str? =null
        endpoint_type i8 1+ =1
        cluster_id str
        controller_id i32 =-1
        brokers []
          broker_id i32
          host str
          port i32
          rack str? =null
          is_fenced bool 2+
        cluster_authorized_operations i32 =-2147483648
    """,
)

DESCRIBE_TOPIC_PARTITIONS = Api.define(
    75,
    "DescribeTopicPartitions",
    versions=(0, 0),
    flexible_from=0,
    request="""
        topics []
          name str
        response_partition_limit i32 =2000
        cursor {}? =null
          topic_name str
          partition_index i32
    """,
    response="""
        throttle_time_ms i32
        topics []
          error_code i16
          name str?
          topic_id uuid
          is_internal bool
          partitions []
            error_code i16
            partition_index i32
            leader_id i32
            leader_epoch i32 =-1
            replica_nodes []i32
            isr_nodes []i32
            eligible_leader_replicas []i32? =null
            last_known_elr []i32? =null
            offline_replicas []i32
          topic_authorized_operations i32 =-2147483648
        next_cursor {}? =null
          topic_name str
          partition_index i32
    """,
)
