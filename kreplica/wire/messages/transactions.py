"""Transactions: partitions, offsets, end and administration."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

ADD_PARTITIONS_TO_TXN = Api.define(
    24,
    "AddPartitionsToTxn",
    versions=(0, 5),
    flexible_from=3,
    request="""
        transactions [] 4+
          transactional_id str
          producer_id i64
          producer_epoch i16
          verify_only bool
          topics []
            name str
            partitions []i32
        v3_and_below_transactional_id str 0-3
        v3_and_below_producer_id i64 0-3
        v3_and_below_producer_epoch i16 0-3
        v3_and_below_topics [] 0-3
          name str
          partitions []i32
    """,
    response="""
        throttle_time_ms i32
        error_code i16 4+
        results_by_transaction [] 4+
          transactional_id str
          topic_results []
            name str
            results_by_partition []
              partition_index i32
              partition_error_code i16
        results_by_topic_v3_and_below [] 0-3
          name str
          results_by_partition []
            partition_index i32
            partition_error_code i16
    """,
)

ADD_OFFSETS_TO_TXN = Api.define(
    25,
    "AddOffsetsToTxn",
    versions=(0, 4),
    flexible_from=3,
    request="""
        transactional_id str
        producer_id i64
        producer_epoch i16
        group_id str
    """,
    response="""
        throttle_time_ms i32
        error_code i16
    """,
)

END_TXN = Api.define(
    26,
    "EndTxn",
    versions=(0, 5),
    flexible_from=3,
    request="""
        transactional_id str
        producer_id i64
        producer_epoch i16
        committed bool
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        producer_id i64 5+ =-1
        producer_epoch i16 5+ =-1
    """,
)

WRITE_TXN_MARKERS = Api.define(
    27,
    "WriteTxnMarkers",
    versions=(0, 2),
    flexible_from=1,
    request="""
        markers []
          producer_id i64
          producer_epoch i16
          transaction_result bool
          topics []
            name str
            partition_indexes []i32
          coordinator_epoch i32
          transaction_version i8 2+
    """,
    response="""
        markers []
          producer_id i64
          topics []
            name str
            partitions []
              partition_index i32
              error_code i16
    """,
)

TXN_OFFSET_COMMIT = Api.define(
    28,
    "TxnOffsetCommit",
    versions=(0, 5),
    flexible_from=3,
    request="""
        transactional_id str
        group_id str
        producer_id i64
        producer_epoch i16
        generation_id i32 3+ =-1
        member_id str 3+
        group_instance_id str? 3+ =null
        topics []
          name str
          partitions []
            partition_index i32
            committed_offset i64
            committed_leader_epoch i32 2+ =-1
            committed_metadata str?
    """,
    response="""
        throttle_time_ms i32
        topics []
          name str
          partitions []
            partition_index i32
            error_code i16
    """,
)

DESCRIBE_PRODUCERS = Api.define(
    61,
    "DescribeProducers",
    versions=(0, 0),
    flexible_from=0,
    request="""
        topics []
          name str
          partition_indexes []i32
    """,
    response="""
        throttle_time_ms i32
        topics []
          name str
          partitions []
            partition_index i32
            error_code i16
            error_message str? =null
            active_producers []
              producer_id i64
              producer_epoch i32
              last_sequence i32 =-1
              last_timestamp i64 =-1
              coordinator_epoch i32
              current_txn_start_offset i64 =-1
    """,
)

DESCRIBE_TRANSACTIONS = Api.define(
    65,
    "DescribeTransactions",
    versions=(0, 0),
    flexible_from=0,
    request="""
        transactional_ids []str
    """,
    response="""
        throttle_time_ms i32
        transaction_states []
          error_code i16
          transactional_id str
          transaction_state str
          transaction_timeout_ms i32
          transaction_start_time_ms i64
          producer_id i64
          producer_epoch i16
          topics []
            topic str
            partitions []i32
    """,
)

LIST_TRANSACTIONS = Api.define(
    66,
    "ListTransactions",
    versions=(0, 2),
    flexible_from=0,
    request="""
        state_filters []str
        producer_id_filters []i64
        duration_filter i64 1+ =-1
        transactional_id_pattern str? 2+ =null
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        unknown_state_filters []str
        transaction_states []
          transactional_id str
          producer_id i64
          transaction_state str
    """,
)
