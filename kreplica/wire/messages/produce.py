"""Produce and InitProducerId."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

PARTITIONS_COST_MAX = 200_000
"""Maximum cost of a Produce request; allows 18,000 partitions of one topic, or 10,000 topics."""

STEP_COST_MAX = 20_000
"""Maximum cost of a Produce request that is parsed in one step, which takes about a millisecond."""

PRODUCE = Api.define(
    0,
    "Produce",
    versions=(0, 12),
    flexible_from=9,
    request="""
        transactional_id str? 3+ =null
        acks i16
        timeout_ms i32
        topic_data []
          name str
          partition_data []
            index i32
            records records? =null
    """,
    request_cost_max=PARTITIONS_COST_MAX,
    request_step_cost_max=STEP_COST_MAX,
    response="""
        responses []
          name str
          partition_responses []
            index i32
            error_code i16
            base_offset i64
            log_append_time_ms i64 2+ =-1
            log_start_offset i64 5+ =-1
            record_errors [] 8+
              batch_index i32
              batch_index_error_message str? =null
            error_message str? 8+ =null
            current_leader {} 10+ @0
              leader_id i32 =-1
              leader_epoch i32 =-1
        throttle_time_ms i32 1+
        node_endpoints [] 10+ @0
          node_id i32
          host str
          port i32
          rack str? =null
    """,
)

INIT_PRODUCER_ID = Api.define(
    22,
    "InitProducerId",
    versions=(0, 6),
    flexible_from=2,
    request="""
        transactional_id str?
        transaction_timeout_ms i32
        producer_id i64 3+ =-1
        producer_epoch i16 3+ =-1
        enable_2pc bool 6+
        keep_prepared_txn bool 6+
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        producer_id i64 =-1
        producer_epoch i16
        ongoing_txn_producer_id i64 6+ =-1
        ongoing_txn_producer_epoch i16 6+ =-1
    """,
)
