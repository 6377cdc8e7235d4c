"""Requests that the controller sends to brokers, and requests that brokers send to the controller."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

# Tags from 7000 on are kreplica's own: Kafka's brokers skip unknown tags (KIP-482).
LEADER_AND_ISR = Api.define(
    4,
    "LeaderAndIsr",
    versions=(0, 7),
    flexible_from=4,
    request="""
        controller_id i32
        is_k_raft_controller bool 7+
        controller_epoch i32
        broker_epoch i64 2+ =-1
        command_number i64 4+ @7003 =-1
        type i8 5+
        ungrouped_partition_states [] 0-1
          topic_name str
          partition_index i32
          controller_epoch i32
          leader i32
          leader_epoch i32
          isr []i32
          partition_epoch i32
          replicas []i32
          adding_replicas []i32 3+
          removing_replicas []i32 3+
          is_new bool 1+
          leader_recovery_state i8 6+
        topic_states [] 2+
          topic_name str
          topic_id uuid 5+
          partition_states []
            topic_name str 0-1
            partition_index i32
            controller_epoch i32
            leader i32
            leader_epoch i32
            isr []i32
            partition_epoch i32
            replicas []i32
            adding_replicas []i32 3+
            removing_replicas []i32 3+
            is_new bool
            leader_recovery_state i8 6+
            eligible_leader_replicas []i32 4+ @7001
            read_only bool 4+ @7002
        live_leaders []
          broker_id i32
          host_name str
          port i32
    """,
    response="""
        error_code i16
        partition_errors [] 0-4
          topic_name str
          partition_index i32
          error_code i16
        topics [] 5+
          topic_id uuid
          partition_errors []
            topic_name str 0-4
            partition_index i32
            error_code i16
    """,
)

STOP_REPLICA = Api.define(
    5,
    "StopReplica",
    versions=(0, 4),
    flexible_from=2,
    request="""
        controller_id i32
        is_k_raft_controller bool 4+
        controller_epoch i32
        broker_epoch i64 1+ =-1
        command_number i64 2+ @7003 =-1
        delete_partitions bool 0-2
        ungrouped_partitions [] 0
          topic_name str
          partition_index i32
        topics [] 1-2
          name str
          partition_indexes []i32
        topic_states [] 3+
          topic_name str
          partition_states []
            partition_index i32
            leader_epoch i32 =-1
            delete_partition bool
    """,
    response="""
        error_code i16
        partition_errors []
          topic_name str
          partition_index i32
          error_code i16
    """,
)

UPDATE_METADATA = Api.define(
    6,
    "UpdateMetadata",
    versions=(0, 8),
    flexible_from=6,
    request="""
        controller_id i32
        is_k_raft_controller bool 8+
        type i8 8+ @0
        part i32 8+ @7001
        parts i32 8+ @7002 =1
        controller_epoch i32
        broker_epoch i64 5+ =-1
        command_number i64 6+ @7003 =-1
        ungrouped_partition_states [] 0-4
          topic_name str
          partition_index i32
          controller_epoch i32
          leader i32
          leader_epoch i32
          isr []i32
          zk_version i32
          replicas []i32
          offline_replicas []i32 4+
        topic_states [] 5+
          topic_name str
          topic_id uuid 7+
          partition_states []
            topic_name str 0-4
            partition_index i32
            controller_epoch i32
            leader i32
            leader_epoch i32
            isr []i32
            zk_version i32
            replicas []i32
            offline_replicas []i32
        live_brokers []
          id i32
          v0_host str 0
          v0_port i32 0
          endpoints [] 1+
            port i32
            host str
            listener str 3+
            security_protocol i16
          rack str? 2+
    """,
    response="""
        error_code i16
    """,
)

CONTROLLED_SHUTDOWN = Api.define(
    7,
    "ControlledShutdown",
    versions=(0, 3),
    flexible_from=3,
    request="""
        broker_id i32
        broker_epoch i64 2+ =-1
    """,
    response="""
        error_code i16
        remaining_partitions []
          topic_name str
          partition_index i32
    """,
)

ALTER_PARTITION = Api.define(
    56,
    "AlterPartition",
    versions=(0, 3),
    flexible_from=0,
    request="""
        broker_id i32
        broker_epoch i64 =-1
        topics []
          topic_name str 0-1
          topic_id uuid 2+
          partitions []
            partition_index i32
            leader_epoch i32
            new_isr []i32 0-2
            new_isr_with_epochs [] 3+
              broker_id i32
              broker_epoch i64 =-1
            leader_recovery_state i8 1+
            partition_epoch i32
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        topics []
          topic_name str 0-1
          topic_id uuid 2+
          partitions []
            partition_index i32
            error_code i16
            leader_id i32
            leader_epoch i32
            isr []i32
            leader_recovery_state i8 1+
            partition_epoch i32
    """,
)
