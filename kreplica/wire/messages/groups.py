"""Consumer groups: membership, assignment and administration."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

FIND_COORDINATOR = Api.define(
    10,
    "FindCoordinator",
    versions=(0, 6),
    flexible_from=3,
    request="""
        key str 0-3
        key_type i8 1+
        coordinator_keys []str 4+
    """,
    response="""
        throttle_time_ms i32 1+
        error_code i16 0-3
        error_message str?1-3 1-3
        node_id i32 0-3
        host str 0-3
        port i32 0-3
        coordinators [] 4+
          key str
          node_id i32
          host str
          port i32
          error_code i16
          error_message str?
    """,
)

JOIN_GROUP = Api.define(
    11,
    "JoinGroup",
    versions=(0, 9),
    flexible_from=6,
    request="""
        group_id str
        session_timeout_ms i32
        rebalance_timeout_ms i32 1+ =-1
        member_id str
        group_instance_id str? 5+ =null
        protocol_type str
        protocols []
          name str
          metadata bytes
        reason str? 8+ =null
    """,
    response="""
        throttle_time_ms i32 2+
        error_code i16
        generation_id i32 =-1
        protocol_type str? 7+ =null
        protocol_name str?7+
        leader str
        skip_assignment bool 9+
        member_id str
        members []
          member_id str
          group_instance_id str? 5+ =null
          metadata bytes
    """,
)

HEARTBEAT = Api.define(
    12,
    "Heartbeat",
    versions=(0, 4),
    flexible_from=4,
    request="""
        group_id str
        generation_id i32
        member_id str
        group_instance_id str? 3+ =null
    """,
    response="""
        throttle_time_ms i32 1+
        error_code i16
    """,
)

LEAVE_GROUP = Api.define(
    13,
    "LeaveGroup",
    versions=(0, 5),
    flexible_from=4,
    request="""
        group_id str
        member_id str 0-2
        members [] 3+
          member_id str
          group_instance_id str? =null
          reason str? 5+ =null
    """,
    response="""
        throttle_time_ms i32 1+
        error_code i16
        members [] 3+
          member_id str
          group_instance_id str?
          error_code i16
    """,
)

SYNC_GROUP = Api.define(
    14,
    "SyncGroup",
    versions=(0, 5),
    flexible_from=4,
    request="""
        group_id str
        generation_id i32
        member_id str
        group_instance_id str? 3+ =null
        protocol_type str? 5+ =null
        protocol_name str? 5+ =null
        assignments []
          member_id str
          assignment bytes
    """,
    response="""
        throttle_time_ms i32 1+
        error_code i16
        protocol_type str? 5+ =null
        protocol_name str? 5+ =null
        assignment bytes
    """,
)

DESCRIBE_GROUPS = Api.define(
    15,
    "DescribeGroups",
    versions=(0, 6),
    flexible_from=5,
    request="""
        groups []str
        include_authorized_operations bool 3+
    """,
    response="""
        throttle_time_ms i32 1+
        groups []
          error_code i16
          error_message str? 6+ =null
          group_id str
          group_state str
          protocol_type str
          protocol_data str
          members []
            member_id str
            group_instance_id str? 4+ =null
            client_id str
            client_host str
            member_metadata bytes
            member_assignment bytes
          authorized_operations i32 3+ =-2147483648
    """,
)

LIST_GROUPS = Api.define(
    16,
    "ListGroups",
    versions=(0, 5),
    flexible_from=3,
    request="""
        states_filter []str 4+
        types_filter []str 5+
    """,
    response="""
        throttle_time_ms i32 1+
        error_code i16
        groups []
          group_id str
          protocol_type str
          group_state str 4+
          group_type str 5+
    """,
)

DELETE_GROUPS = Api.define(
    42,
    "DeleteGroups",
    versions=(0, 2),
    flexible_from=2,
    request="""
        groups_names []str
    """,
    response="""
        throttle_time_ms i32
        results []
          group_id str
          error_code i16
    """,
)

CONSUMER_GROUP_HEARTBEAT = Api.define(
    68,
    "ConsumerGroupHeartbeat",
    versions=(0, 1),
    flexible_from=0,
    request="""
        group_id str
        member_id str
        member_epoch i32
        instance_id str? =null
        rack_id str? =null
        rebalance_timeout_ms i32 =-1
        subscribed_topic_names []str? =null
        subscribed_topic_regex str? 1+ =null
        server_assignor str? =null
        topic_partitions []? =null
          topic_id uuid
          partitions []i32
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str? =null
        member_id str? =null
        member_epoch i32
        heartbeat_interval_ms i32
        assignment {}? =null
          topic_partitions []
            topic_id uuid
            partitions []i32
    """,
)

CONSUMER_GROUP_DESCRIBE = Api.define(
    69,
    "ConsumerGroupDescribe",
    versions=(0, 1),
    flexible_from=0,
    request="""
        group_ids []str
        include_authorized_operations bool
    """,
    response="""
        throttle_time_ms i32
        groups []
          error_code i16
          error_message str? =null
          group_id str
          group_state str
          group_epoch i32
          assignment_epoch i32
          assignor_name str
          members []
            member_id str
            instance_id str? =null
            rack_id str? =null
            member_epoch i32
            client_id str
            client_host str
            subscribed_topic_names []str
            subscribed_topic_regex str? =null
            assignment {}
              topic_partitions []
                topic_id uuid
                topic_name str
                partitions []i32
            target_assignment {}
              topic_partitions []
                topic_id uuid
                topic_name str
                partitions []i32
            member_type i8 1+ =-1
          authorized_operations i32 =-2147483648
    """,
)
