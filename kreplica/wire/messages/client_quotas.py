"""Quotas of users and client IDs (KIP-546)."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

DESCRIBE_CLIENT_QUOTAS = Api.define(
    48,
    "DescribeClientQuotas",
    versions=(0, 1),
    flexible_from=1,
    request="""
        components []
          entity_type str
          match_type i8
          match str?
        strict bool
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str?
        entries []?
          entity []
            entity_type str
            entity_name str?
          values []
            key str
            value f64
    """,
)

ALTER_CLIENT_QUOTAS = Api.define(
    49,
    "AlterClientQuotas",
    versions=(0, 1),
    flexible_from=1,
    request="""
        entries []
          entity []
            entity_type str
            entity_name str?
          ops []
            key str
            value f64
            remove bool
        validate_only bool
    """,
    response="""
        throttle_time_ms i32
        entries []
          error_code i16
          error_message str?
          entity []
            entity_type str
            entity_name str?
    """,
)
