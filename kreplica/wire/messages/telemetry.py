"""Client telemetry: subscriptions to metrics, and the metrics that clients push (KIP-714)."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

GET_TELEMETRY_SUBSCRIPTIONS = Api.define(
    71,
    "GetTelemetrySubscriptions",
    versions=(0, 0),
    flexible_from=0,
    request="client_instance_id uuid",
    response="""
        throttle_time_ms i32
        error_code i16
        client_instance_id uuid
        subscription_id i32
        accepted_compression_types []i8
        push_interval_ms i32
        telemetry_max_bytes i32
        delta_temporality bool
        requested_metrics []str
    """,
)

PUSH_TELEMETRY = Api.define(
    72,
    "PushTelemetry",
    versions=(0, 0),
    flexible_from=0,
    request="""
        client_instance_id uuid
        subscription_id i32
        terminating bool
        compression_type i8
        metrics bytes
    """,
    response="""
        throttle_time_ms i32
        error_code i16
    """,
)
