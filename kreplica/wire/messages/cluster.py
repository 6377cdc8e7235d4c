"""Requests from brokers to the controller, except those about partitions: features and producer ID blocks."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

UPDATE_FEATURES = Api.define(
    57,
    "UpdateFeatures",
    versions=(0, 1),
    flexible_from=0,
    request="""
        timeout_ms i32 =60000
        feature_updates []
          feature str
          max_version_level i16
          allow_downgrade bool 0
          upgrade_type i8 1+ =1
        validate_only bool 1+
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str?
        results []
          feature str
          error_code i16
          error_message str?
    """,
)

ENVELOPE = Api.define(
    58,
    "Envelope",
    versions=(0, 0),
    flexible_from=0,
    request="""
        request_data bytes
        request_principal bytes? =null
        client_host_address bytes
    """,
    response="""
        response_data bytes? =null
        error_code i16
    """,
)

ALLOCATE_PRODUCER_IDS = Api.define(
    67,
    "AllocateProducerIds",
    versions=(0, 0),
    flexible_from=0,
    request="""
        broker_id i32
        broker_epoch i64 =-1
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        producer_id_start i64
        producer_id_len i32
    """,
)
